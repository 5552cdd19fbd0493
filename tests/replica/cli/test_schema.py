"""The JSON of a derivation is what its schema says."""

import json
from pathlib import Path

import pytest

from replica.cli import run

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "derivation.schema.json").read_text()
)
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float),
         "null": type(None)}


def problems(value, schema, where="$"):
    """The parts of JSON Schema that ours uses."""
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[k]) for k in kinds):
        yield f"{where}: {type(value).__name__}"
        return
    if isinstance(value, dict):
        yield from (f"{where}: no {k}" for k in schema.get("required", []) if k not in value)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            if inner is False:
                yield f"{where}: {key} is not known"
            else:
                yield from problems(item, inner, f"{where}.{key}")
    if isinstance(value, list) and "items" in schema:
        for k, item in enumerate(value):
            yield from problems(item, schema["items"], f"{where}[{k}]")


@pytest.mark.parametrize("words", [
    ["--activation", "linear", "--length", "2"], ["--chain", "bayes", "--check"],
    ["--chain", "population", "--activation", "softmax"],
    ["--chain", "flow", "--activation", "erf", "--task", "max"],
])
def test_documents_follow_the_schema(words, capsys):
    assert run(["derive", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(problems(found, SCHEMA)) == []
    assert found["steps"]


def test_the_validator_can_fail():
    wrong = {"schema_version": 2, "inputs": {"chain": "x", "task": "max", "activation": 1},
             "warnings": [1], "steps": [{"name": "a"}], "more": 1}
    assert len(list(problems(wrong, SCHEMA))) >= 8
