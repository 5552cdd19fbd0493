"""Golden LaTeX, and that it compiles."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sympy as sp

from replica.document.latex_printer import to_latex
from replica.document.layout import PAGE, lay_out, width
from replica.document.notation import symbol_latex
from replica.document.prose import plain
from replica.document.write import latex_document, text_document
from tests.conftest import derived

GOLDEN = Path(__file__).parents[2] / "golden"


def test_golden_latex(activation, request):
    text = latex_document(derived(activation), ["Golden file."])
    target = GOLDEN / f"erm-spiked-{activation}.tex"
    if request.config.getoption("--update-golden"):
        target.write_text(text)
    assert text == target.read_text(), "run pytest --update-golden if the change is meant"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("task", ["spiked", "max"])
def test_documents_compile_without_overfull_lines(activation, task, tmp_path):
    (tmp_path / "d.tex").write_text(latex_document(derived(activation, task), ["A test."]))
    for _ in range(2):
        found = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "d.tex"], cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )
    assert found.returncode == 0, found.stdout[-2000:]
    assert not re.findall(r"Overfull \\hbox.*|.*undefined.*", found.stdout)


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
