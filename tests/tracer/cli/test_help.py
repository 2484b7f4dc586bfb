"""The help texts, the time they take, and shell completion."""

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import tracer.cli
from tracer.analyzers import grouping, options
from tracer.analyzers.cost.count import CONVENTIONS

CONTEXT = click.Context(tracer.cli.tracer)
COMMANDS = tracer.cli.tracer.list_commands(CONTEXT)
HEAVY = {
    "chainer", "msgspec", "numba", "numpy", "onnx", "onnxruntime", "pandas", "rich", "scipy",
    "torch",
}  # fmt: skip


def help_of(*command, columns=80, flag="--help-all"):
    """The lines of a help text on a terminal of so many columns."""
    words = [*command, flag if command else "--help"]
    result = CliRunner().invoke(tracer.cli.tracer, words, env={"COLUMNS": str(columns)})
    assert result.exit_code == 0
    return result.output.splitlines()


def options_of(name):
    command = importlib.import_module(f"tracer.cli.{name}").command
    return [param for param in command.params if isinstance(param, click.Option)]


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("name", ["tracer", *COMMANDS])
def test_a_page_changes_on_purpose_alone(name, flag):
    """To write one anew: `COLUMNS=100 tracer NAME --help > tests/tracer/cli/help/NAME.txt`.

    `--help-all` has a page of its own, NAME.all.txt, where it shows more.
    """
    words = () if name == "tracer" else (name,)
    whole = Path(__file__).parent / "help" / f"{name}.all.txt"
    is_whole = flag == "--help-all" and whole.exists()
    page = whole if is_whole else whole.with_name(f"{name}.txt")
    text = "\n".join(help_of(*words, columns=100, flag=flag)) + "\n"
    assert text == page.read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_the_options_that_people_use(name):
    every, common = help_of(name), help_of(name, flag="--help")
    own = len(options_of(name)) - len(tracer.cli.VOICE) - 1  # and --help-all itself
    shown = [line for line in common if line.lstrip().startswith("-") and line[:3] == "  -"]
    if own <= 12:
        assert common == every
        return
    assert 7 <= len(shown) <= 23
    assert any(f"Show all {own} options and exit." in line for line in common)
    assert {line.split()[0] for line in shown} < {w for line in every for w in line.split()}


def test_help_imports_nothing_heavy():
    code = (
        "import sys, tracer.cli\n"
        "for words in ['--help'], *([name, '--help'] for name in sys.argv[1:]):\n"
        "    assert tracer.cli.main(words) == 0\n"
        "print('modules:', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMANDS], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("Usage: ") == len(COMMANDS) + 1
    assert not HEAVY & set(done.stdout.rpartition("modules:")[2].split())


@pytest.mark.parametrize(
    "words", [("help", "profile"), ("profile", "-h"), ("help", "quantise"), ("what-if", "--help")]
)
def test_help_has_several_words(words):
    name = {"quantise": "quantize", "what-if": "whatif"}.get(words[words[0] == "help"])
    result = CliRunner().invoke(tracer.cli.tracer, words)
    assert result.output.startswith(f"Usage: tracer {name or 'profile'} ")


def test_the_choices_of_options_are_those_of_the_library():
    assert tuple(CONVENTIONS) == options.ADDITION_CONVENTIONS
    assert tuple(grouping.NAMES) == options.GROUPINGS


def test_commands_stand_in_three_sections():
    titles = ("Measure:", "Understand:", "Transform:")
    sections, title = {}, None
    for line in help_of():
        title = line if line.endswith(":") and not line.startswith(" ") else title
        if title in titles and line.startswith("  "):
            sections.setdefault(title, []).append(line.split()[0])
    assert sections == {
        "Measure:": ["profile", "compare", "bisect", "report", "demo"],
        "Understand:": [
            "count",
            "fusions",
            "diff",
            "interpret",
            "reveal",
            "fingerprint",
            "env",
            "docs",
        ],
        "Transform:": ["export", "extract", "quantize", "tune", "whatif", "narrow"],
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_one_short_sentence(name):
    sentence = importlib.import_module(f"tracer.cli.{name}").command.get_short_help_str(200)
    assert len(sentence) <= 60
    assert sentence.endswith(".") and sentence.count(".") == 1
    assert any(line.endswith(f"  {sentence}") for line in help_of())  # not cut off


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_tells_its_value_and_what_it_sets(name):
    text = "\n".join(help_of(name))
    assert "INTEGER" not in text and "FLOAT" not in text and " TEXT" not in text
    assert max(map(len, text.splitlines())) <= 100  # examples are not wrapped
    for option in options_of(name):
        assert option.hidden or option.help[0].isupper() or ":" in option.help, option.opts
        assert option.hidden or option.help.rstrip(")")[-1] in ".]…", option.opts


@pytest.mark.parametrize("name", ["profile", "whatif", "compare", "quantize", "export"])
def test_options_stand_in_sections(name):
    titles = [line for line in help_of(name) if line.endswith(":") and line[0] != " "]
    assert len(titles) >= 4
    assert "Output:" in titles


def test_examples_stand_in_the_options():
    shown = " ".join(" ".join(help_of("profile")).split())
    for example in ("1,16,64", "--dim sequence=128", "cpu, cuda"):
        assert example in shown


@pytest.mark.parametrize(
    ("words", "expected"), [("tracer prof", "profile"), ("tracer report --by mod", "module")]
)
def test_a_shell_completes_commands_and_choices(words, expected):
    env = {
        **os.environ,
        "_TRACER_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tracer"], capture_output=True, text=True, env=env, check=True
    )
    assert done.stdout.splitlines() == [f"plain,{expected}"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_documented_line_gives_a_script_for_each_shell(name):
    assert f"_TRACER_COMPLETE={name}_source tracer" in Path("docs/command-line.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "tracer"], capture_output=True, text=True, check=True,
        env={**os.environ, "_TRACER_COMPLETE": f"{name}_source"},
    )  # fmt: skip
    assert f"_TRACER_COMPLETE={name}_complete" in done.stdout
    assert " tracer" in done.stdout
    if shutil.which(name):
        checked = subprocess.run([name, "-n"], input=done.stdout, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("words", [(), ("count",)])
def test_every_command_tells_the_version(words, capfd):
    assert tracer.cli.main([*words, "-V"]) == 0
    assert capfd.readouterr() == (
        f"tracer, version {importlib.metadata.version('tracer-onnx')}\n",
        "",
    )


@pytest.mark.parametrize("columns", ["1", "3", "12"])
def test_help_is_shown_on_a_terminal_of_any_width(columns, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert tracer.cli.main(["profile", "--help"]) == 0
    out, err = capfd.readouterr()
    assert "--runs" in out and err == ""
