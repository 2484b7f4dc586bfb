"""Read the examples of the documentation from Markdown, run them, and write today's output.

A block fenced as `console` holds commands, each after `$ `, and the output below them, if any. A
block fenced as `python` holds code. All blocks of a page run in one folder, in the order of the
page, with the models of a checkout in `models/` and those of `tracer demo` in `demo/`.
`python -m tests.docs.examples README.md` writes today's outputs where a page shows one. A line `…`
marks a cut: what was cut stays cut, and each line that is shown becomes the line of today that
resembles it most. Look at the page afterwards.

Other blocks, and tables, show commands with names that stand for the reader's: those are parsed.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from rich.console import Console

from tracer.support.files import EXAMPLES

ROOT = Path(__file__).parents[2]
COLUMNS = 110
CUT = "…"
_NEAR, _FAR, _LEAST = 0.05, 0.002, 0.4
"""What each line between two that are shown takes from their likeness, without and with a cut; and
the least likeness."""
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OTHER_BLOCK = re.compile(r"^```(?!console|python)\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^tracer (?:\\\n *|[^\n\\])*", re.MULTILINE)
_IN_A_TABLE = re.compile(r"^\| .* \| `(tracer [^`]*)` \|$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One command with the output that the page shows, or one block of Python."""

    language: str
    code: str
    shown: str

    def run(self, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run the example in `folder`, as a reader would."""
        environment = {**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1"}
        environment["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            self._command(), cwd=folder, env=environment, capture_output=True, text=True
        )

    @property
    def arguments(self) -> list[str]:
        """The words after `tracer`."""
        program, *arguments = shlex.split(self.code)
        assert program == "tracer", self.code
        return arguments

    def _command(self) -> list[str]:
        if self.language == "python":
            return [sys.executable, "-c", self.code]
        return [sys.executable, "-m", "tracer", *self.arguments]


class Screens:
    """Takes the place of `tracer.cli._output.write_screen`: shows every page at several widths.

    A command runs once, and what it shows is drawn for each width.
    """

    def __init__(self, *widths: int) -> None:
        self._files = {width: io.StringIO() for width in widths}

    def __call__(self, show: Callable[[Console], None]) -> None:
        for width, file in self._files.items():
            show(Console(file=file, width=width, highlight=False))

    @property
    def shown(self) -> Mapping[int, str]:
        """All that was shown so far, by width."""
        return {width: file.getvalue() for width, file in self._files.items()}


def examples(page: Path) -> list[Example]:
    """Every example of a page, in its order."""
    blocks = _BLOCK.finditer(page.read_text())
    return [example for block in blocks for example in _of(block[1], block[2])]


def mentioned(page: Path) -> list[str]:
    """Every command of a page that stands in another block, or alone in a cell of a table."""
    text = page.read_text()
    in_blocks = [c[0] for block in _OTHER_BLOCK.findall(text) for c in _COMMAND.finditer(block)]
    whole = [re.sub(r"\\\n *", "", command) for command in in_blocks]
    return [*(re.split(" {2,}", command)[0] for command in whole), *_IN_A_TABLE.findall(text)]


def _of(language: str, text: str) -> Iterator[Example]:
    if language == "python":
        yield Example(language, text, "")
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", "").partition("\n")
        yield Example(language, command, shown.rstrip("\n"))


def folder_of_examples(folder: Path) -> Path:
    """`folder`, with what the examples need in it."""
    (folder / "models").symlink_to(ROOT / "models")
    (folder / "demo").mkdir()
    for model in EXAMPLES.glob("*.onnx"):
        shutil.copy(model, folder / "demo")
    return folder


def updated(shown: str, output: str) -> str:
    """An output of today, cut as the page has it."""
    lines = [line.rstrip() for line in output.rstrip("\n").split("\n")]
    old = shown.split("\n")
    if CUT not in old:
        return "\n".join(lines)
    kept, place = list[str](), 0
    for before, line in zip([CUT, *old], old, strict=False):
        if line == CUT:
            kept.append(CUT)
            continue
        step = _FAR if before == CUT else _NEAR
        alike = [_likeness(line, new) - step * far for far, new in enumerate(lines[place:])]
        if alike and max(alike) > _LEAST:
            place += alike.index(max(alike)) + 1
            kept.append(lines[place - 1])
        else:
            print(f"no line of today is like: {line}", file=sys.stderr)
    return "\n".join(kept)


def _likeness(one: str, other: str) -> float:
    """How alike two lines are, from 0 to 1, whatever their numbers are."""
    pair = (re.sub(r"[\d.,]+", "0", line) for line in (one, other))
    return SequenceMatcher(None, *pair, autojunk=False).ratio()


def refresh(page: Path) -> None:
    """Write the outputs of today's code where the page shows an output."""
    with tempfile.TemporaryDirectory() as name:
        folder, text = folder_of_examples(Path(name)), page.read_text()
        for example in examples(page):
            result = example.run(folder)
            if result.returncode:
                print(f"{page}: {example.code}\n{result.stderr}", file=sys.stderr)
            elif example.shown:
                text = text.replace(example.shown, updated(example.shown, result.stdout), 1)
        page.write_text(text)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        refresh(Path(argument))
