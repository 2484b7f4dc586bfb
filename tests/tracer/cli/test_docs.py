"""`tracer docs`, and what texts of the product say of its pages."""

import ast
import re
from pathlib import Path

import pytest

import tracer.cli

ROOT = Path(__file__).parents[3]
PACKAGES = ("tracer", "analyzers", "exporters")
COMMANDS = sorted(tracer.cli.Commands().list_commands(None))


def run(capfd, *arguments):
    code = tracer.cli.main(["docs", *arguments])
    return code, *capfd.readouterr()


def test_pages_are_listed_and_shown(capfd):
    code, listed, _ = run(capfd)
    names = [line.split()[0] for line in listed.splitlines()]
    assert code == 0 and {"energy", "formats", "start"} <= {*names}
    assert {*names} == {file.stem for file in (ROOT / "docs").glob("*.md")}
    for name in names:
        text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        code, out, err = run(capfd, name)
        assert (code, err) == (0, "")
        assert out == text if "\n::: " not in text else out.startswith(text.split("\n::: ")[0])


def test_a_page_of_python_names_help_in_the_place_of_docstrings(capfd):
    out = run(capfd, "python")[1]
    assert "help(tracer)" in out and ":::" not in out and "show_root" not in out


def test_an_unknown_page_names_those_there_are(capfd):
    code, out, err = run(capfd, "enrgy")
    assert code == 2 and not out and "'enrgy'" in err and "energy" in err


def strings(file):
    """The strings of a file, and the parts of those with values in them."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.nightly
def test_texts_name_pages_that_a_user_can_open(capfd):
    files = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]
    texts = [text for file in files for text in strings(file)]
    named = {page for text in texts for page in re.findall(r"tracer docs ([a-z-]+)", text)}
    assert len(named) > 5
    for page in named:
        assert run(capfd, page)[0] == 0, page


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_no_file_that_is_not_installed(command, capfd):
    tracer.cli.main([command, "--help"])
    assert not re.search(r"docs/[\w-]+\.md", capfd.readouterr().out)
