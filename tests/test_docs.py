"""The transcripts of the guide are what running them prints."""

import doctest
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_transcripts(page):
    text = re.sub(r"^```.*$", "", page.read_text(), flags=re.MULTILINE)  # fences end no output
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    found = doctest.DocTestRunner(verbose=False).run(test)
    assert found.attempted > 5
    assert found.failed == 0


def test_the_readme_names_every_page():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert len(PAGES) == 4
    for page in PAGES:
        assert f"docs/{page.name}" in readme
