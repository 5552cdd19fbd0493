"""Arrows point one way: validation -> derivations -> replica; CLI and API sit above."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
ABOVE = {"replica/api.py", "replica/__init__.py", "replica/__main__.py"}
ALLOWED = {"replica": {"replica"}, "derivations": {"replica", "derivations"},
           "validation": {"replica", "derivations", "validation"}}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_no_package_imports_one_above_it():
    ours = set(ALLOWED)
    for package, allowed in ALLOWED.items():
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name in ABOVE or name.startswith("replica/cli/"):
                continue
            for module in imports(path):
                head = module.split(".")[0]
                assert head not in ours or head in allowed, f"{name} imports {module}"
                assert module not in ("replica.api",), f"{name} imports the API"
                assert not module.startswith("replica.cli"), f"{name} imports the command line"


def test_the_engine_does_not_name_single_location_regression():
    for path in (ROOT / "replica").rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name in ABOVE or name.startswith("replica/cli/"):
            continue
        text = path.read_text().lower()
        assert "spiked" not in text, name
        assert "single-location" not in text, name
