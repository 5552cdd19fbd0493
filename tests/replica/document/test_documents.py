"""Golden LaTeX, and that it compiles."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sympy as sp

import replica
from derivations.activations import activation as built_in
from replica.cli import run
from replica.cli.derive import _code
from replica.document.blocks import Formula, blocks
from replica.document.html import html_document
from replica.document.latex import latex_document, latex_fragment, latex_preamble
from replica.document.latex_printer import to_latex
from replica.document.layout import PAGE, lay_out, width
from replica.document.markdown import markdown_document, notebook_document
from replica.document.notation import symbol_latex
from replica.document.prose import plain
from replica.document.text import text_document
from tests.conftest import derived

GOLDEN = Path(__file__).parents[2] / "golden"


def test_golden_latex(activation, request):
    text = latex_document(derived(activation), ["Golden file."])
    target = GOLDEN / f"erm-spiked-{activation}.tex"
    if request.config.getoption("--update-golden"):
        target.write_text(text)
    assert text == target.read_text(), "run pytest --update-golden if the change is meant"


needs_latex = pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed"
)


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_documents_compile_without_overfull_lines(activation, task, tmp_path):
    check_compiles(latex_document(derived(activation, task), ["A test."]), tmp_path)


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("task", ["spiked", "max"])
@pytest.mark.parametrize("chain", ["bayes", "population", "flow"])
def test_documents_of_other_chains_compile(chain, task, tmp_path):
    for name in ("softmax",) if chain == "bayes" else ("softmax", "linear", "erf"):
        equations = replica.derive(name, task=task, chain=chain)
        check_compiles(latex_document(equations, ["A test."]), tmp_path)


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("chain", ["erm", "flow"])
@pytest.mark.parametrize("expression", [
    "1 + tanh(b*x + c)**2*exp(-x**2)",
    "1 + tanh(b*x + c)**2*exp(-lambda*x**2) + c*erf(x)/(1+x**2)",
])
def test_documents_of_long_activations_compile(chain, expression, tmp_path):
    """Factors and functions inside sums over tokens get names too."""
    parameters = {n: 0.5 for n in ("b", "c", "lambda") if n in expression}
    own = replica.activation("long", expression, parameters=parameters)
    text = latex_document(replica.derive(own, chain=chain), ["A test."])
    check_compiles(text, tmp_path)


@pytest.mark.slow
@needs_latex
def test_two_fragments_go_into_one_article(tmp_path):
    one, two = (replica.derive("linear", chain=c) for c in ("population", "bayes"))
    check_compiles("\n".join([
        r"\documentclass[11pt]{article}", r"\usepackage[margin=2.4cm]{geometry}",
        latex_preamble(), r"\begin{document}",
        latex_fragment(one, []), latex_fragment(two, []), r"\end{document}",
    ]), tmp_path)


def check_compiles(text, tmp_path):
    (tmp_path / "d.tex").write_text(text)
    for _ in range(2):
        found = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"], cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )
    assert found.returncode == 0, found.stdout[-2000:]
    assert not re.findall(r"Overfull \\hbox.*|.*undefined.*|.*multiply.*", found.stdout)


def test_lines_fit_the_page():
    for step in derived("softplus").derivation:
        for name, value in step.conclusion.items():
            for equation in lay_out(name, value):
                for line in equation.lines:
                    assert width(line) < 1.5 * PAGE


def test_every_symbol_has_latex():
    assert symbol_latex("mhat_k") == r"\hat{m}_{k}"
    assert symbol_latex("alpha") == r"\alpha"
    assert symbol_latex("qhat_kv") == r"\hat{q}_{kv}"


def test_positive_terms_come_first():
    q, m = sp.Symbol("q_k", positive=True), sp.Symbol("m_k", real=True)
    assert to_latex(sp.sqrt(q - m**2)) == r"\sqrt{q_{k} - m_{k}^{2}}"


def test_text_names_every_rule_and_assumption():
    equations = derived("softmax")
    text = text_document(equations, [])
    for step in equations.derivation:
        assert plain(step.rule) in text
        assert plain(step.assumption) in text
    assert "[not yet derived]" not in text


def test_plain_prose_has_no_tex_left():
    for step in derived("softmax").derivation:
        for text in (step.rule, step.assumption, step.text):
            assert not set(plain(text)) & set("$\\{}")
    assert plain(r"$\beta \to \infty$, $\hat{m}$ and $h^\ast$") == "beta -> oo, mhat and h*"


def test_mathml_of_every_conclusion():
    from replica.document.mathml import display_mathml

    for step in derived("softplus").derivation:
        for name in step.conclusion:
            found = display_mathml(step, name)
            assert found.startswith("<math")
            assert "merror" not in found


def test_every_format_has_every_equation_and_number():
    equations = derived("linear")
    count = sum(isinstance(b, Formula) for b in blocks(equations, []))
    latex = latex_document(equations, [])
    assert len(re.findall(r"\\label\{eq:\d+\}", latex)) == count
    markdown = markdown_document(equations, [])
    assert re.findall(r"\\tag\{(\d+)\}", markdown) == [str(k + 1) for k in range(count)]
    page = html_document(equations, [])
    assert re.findall(r'id="eq-(\d+)"', page) == [str(k + 1) for k in range(count)]
    book = json.loads(notebook_document(equations, [], "import replica"))
    text = "".join("".join(c["source"]) for c in book["cells"])
    assert len(re.findall(r"\\tag\{\d+\}", text)) == count


def test_html_stands_alone_and_its_links_have_targets():
    page = html_document(replica.derive(chain="bayes"), ["Text with <angle> & $x < y$."])
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "merror" not in page
    assert "&lt;angle&gt;" in page
    targets = set(re.findall(r'id="(step-\d+)"', page))
    assert set(re.findall(r'href="#(step-\d+)"', page)) <= targets
    assert len(targets) == 14


def test_the_notebook_is_valid_and_its_code_runs():
    book = json.loads(notebook_document(
        replica.derive("linear", chain="population"), [],
        _code("population", "spiked", built_in("linear")),
    ))
    assert book["nbformat"] == 4
    assert len({c["id"] for c in book["cells"]}) == len(book["cells"])
    (code,) = [c for c in book["cells"] if c["cell_type"] == "code"]
    *lines, last = "".join(code["source"]).splitlines()
    names = {}
    exec("\n".join(lines), names)
    shown = eval(last, names)
    assert "closed moments" in shown.derivation
    assert shown._repr_markdown_().startswith("# Replica derivation: Population level")


def test_an_average_over_a_named_part_stays_an_average():
    """A wide body inside E[...] gets a name; the E must not vanish with it."""
    step = replica.derive("linear", chain="population").derivation["population risk"]
    first = lay_out("R", step.conclusion["risk"])[0]
    assert any("mathbb{E}" in line for line in first.lines)


@pytest.mark.parametrize("own", [
    replica.activation("square", "x**2"),
    replica.activation("gate", "1 + tanh(shift + x)",
                       parameters={"shift": {"default": -0.5, "min": -3}}),
    replica.activation("soft", "1 + x**2", normalised=True),
    replica.activation("rounded", "c + relu(x)", kink=0.01, parameters={"c": 0.1}),
], ids=lambda a: a.name)
def test_the_notebook_of_an_own_activation_defines_it(own):
    *lines, last = _code("erm", "spiked", own).splitlines()
    names = {}
    exec("\n".join(lines), names)
    again = eval(last, names).model.activation
    assert again == own


def test_every_target_is_checked_before_one_is_written(tmp_path, capsys):
    for blocked, words in (
        ("preamble.tex", ["--format", "latex", "--fragment"]),
        ("erm-spiked-linear.txt", ["--graph", str(tmp_path / "erm.svg")]),
    ):
        folder = tmp_path / blocked.partition(".")[0]
        (folder / blocked).mkdir(parents=True)
        arguments = ["derive", "--activation", "linear", "--output", str(folder), *words]
        assert run(arguments) == 2
        assert blocked in capsys.readouterr().err
        assert [p.name for p in folder.iterdir()] == [blocked]
        assert not (tmp_path / "erm.svg").exists()


def test_names_of_files_that_are_too_long(tmp_path, capsys):
    for words in (["--output", str(tmp_path / ("a" * 300))],
                  ["--graph", str(tmp_path / ("a" * 300 + ".svg"))]):
        assert run(["derive", "--activation", "linear", *words]) == 2
        assert words[0] in capsys.readouterr().err
    longest = tmp_path / ("a" * 246 + ".svg")
    assert run(["derive", "--activation", "linear", "--graph", str(longest)]) == 0
    assert longest.exists()


def test_an_empty_activation_is_refused(capsys):
    assert run(["derive", "--activation", ""]) == 2
    assert "--activation" in capsys.readouterr().err
