"""Every example of the documentation runs, fits terminals, and prints what its page shows."""

import re
import shlex

import click
import pytest

import tracer.cli
from tests.docs.examples import (
    COLUMNS,
    ROOT,
    Screens,
    examples,
    folder_of_examples,
    mentioned,
)
from tracer.containment import signals

ALL = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in ALL if examples(page)]
TERMINALS = 80, 160
_MEASURED = ("note: ", "- ")
"""How lines begin that depend on the machine: notes and advice."""
_UNITS = {"ns", "µs", "ms", "s"}
"""Units of a time, which follow its size."""
_MACHINE = re.compile(r"\d+ CPUs? · ")
"""What the line has that names the machine itself."""


def words(text: str) -> set[str]:
    """The words of an output that are the same on every machine: no figure or unit, nothing cut."""
    lines = (line for line in text.splitlines() if not _depends_on_the_machine(line))
    tokens = (token.strip(".,:;()") for line in lines for token in line.split())
    return {token for token in tokens if re.fullmatch(r"[^\W\d_][^\d…]*", token)} - _UNITS


def _depends_on_the_machine(line: str) -> bool:
    return line.strip().startswith(_MEASURED) or bool(_MACHINE.search(line))


@pytest.mark.nightly
@pytest.mark.needs("torch", "chainer", "sklearn", "matplotlib")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(folder_of_examples(tmp_path))
    for example in examples(page):
        if example.language == "python":
            exec(compile(example.code, f"{page.name}, python", "exec"), {"__name__": "__main__"})
            continue
        screens = Screens(COLUMNS, *TERMINALS)
        monkeypatch.setattr("tracer.cli._output.write_screen", screens)
        code = tracer.cli.main(example.arguments)
        out, err = capfd.readouterr()
        assert code == 0, f"{example.code}\n{err}"
        for columns in TERMINALS:
            lines = screens.shown[columns].splitlines()
            assert max(map(len, lines), default=0) <= columns, example.code
        missing = words(example.shown) - words(out + screens.shown[COLUMNS])
        assert not missing, f"{example.code}: the page shows {sorted(missing)}"


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_commands_with_the_readers_names_have_options_that_exist(page):
    for command in mentioned(page):
        _, name, *arguments = shlex.split(command)
        program = click.Context(tracer.cli.tracer, help_option_names=["-h", "--help"])
        chosen = tracer.cli.tracer.get_command(program, name)
        assert chosen is not None, command
        with signals.raising():  # which ends the time limit that the example may set
            # raises where click cannot parse it; a command keeps its first context's -h
            chosen.make_context(name, arguments, parent=program)


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
