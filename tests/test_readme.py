"""What the README shows runs, and says what it says."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.slow
def test_the_python_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "(mhat_w**2*rho + qhat_w)/(Vhat_w + r_w)**2" in printed
    assert "6*V_v*TokenSum(sigma(l1)**2, l1) + 1" in printed


def test_there_are_two_commands_for_a_fresh_machine():
    commands = re.findall(r"^python3 -m venv .*$", TEXT, flags=re.M)
    assert len(commands) == 2
    assert "validate --preset quick" in commands[0]
    assert "pytest" in commands[1]
