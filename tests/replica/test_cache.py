"""What is remembered, and when it is made again."""

import pytest

from replica.cache import cache_folder, remembered
from replica.cli import run
from replica.errors import UsageError


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """A folder of its own, a package whose source matters, and a count of what was made."""
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "cache"))
    package = tmp_path / "some_package_of_ours"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def ask(**words):
        def make():
            made.append(words)
            return {"text": f"{len(made)} for {words}"}

        return remembered(words, ("some_package_of_ours",), make)

    ask.made, ask.package = made, package
    return ask


def entry():
    (path,) = cache_folder().iterdir()
    return path


def test_the_same_words_are_made_once(asked):
    assert asked(a=1) == asked(a=1)
    assert len(asked.made) == 1
    assert asked(a=2) != asked(a=1)
    assert len(asked.made) == 2


def test_changed_source_is_made_again(asked):
    first = asked(a=1)
    (asked.package / "more.py").write_text("x = 1\n")
    assert asked(a=1) != first


@pytest.mark.parametrize("torn", [b"", b"\xff\xfe", b"no digest", None])
def test_a_torn_entry_is_made_again(asked, torn):
    asked(a=1)
    path = entry()
    path.write_bytes(path.read_bytes()[:-3] if torn is None else torn)
    assert asked(a=1)["text"].startswith("2 for")
    assert asked(a=1)["text"].startswith("2 for")


def test_without_a_folder_nothing_is_kept(asked, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "file" / "below"))
    assert asked(a=1) != asked(a=1)


def test_errors_are_not_remembered(asked):
    def fail():
        raise UsageError("a", 1, "2")

    for _ in range(2):
        with pytest.raises(UsageError):
            remembered({"a": 1}, ("some_package_of_ours",), fail)
    assert not cache_folder().exists()


def test_a_changed_activation_file_is_derived_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("REPLICA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "own.toml"
    texts = []
    for expression in ("1 + tanh(x)", "1 + tanh(2*x)", "1 + tanh(x)"):
        path.write_text(f'[activation]\nname = "own"\nexpression = "{expression}"\n')
        assert run(["derive", "--chain", "flow", "--activation", str(path)]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[2] != texts[1]
    assert len(list(cache_folder().glob("*.json"))) == 2
    assert run(["derive", "--activation", str(tmp_path / "missing.toml")]) == 2
