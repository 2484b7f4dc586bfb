"""Read the examples of the documentation from Markdown, run them, and write today's output.

A block fenced as `console` holds commands, each after `$ `, and the output below them, if any. A
block fenced as `python` holds code. All blocks of a page run in one folder, in the order of the
page, with the shipped models in `models/`. `python -m tests.docs.examples README.md` replaces the
outputs that a page shows by complete ones; cut them by hand, and mark each cut with a line `…`.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = 110
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One command with the output that the page shows, or one block of Python."""

    language: str
    code: str
    shown: str

    def run(self, folder: Path, columns: int = COLUMNS) -> subprocess.CompletedProcess[str]:
        """Run the example in `folder`, as a reader would."""
        environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
        environment["PYTHONPATH"] = str(ROOT)
        return subprocess.run(
            self._command(), cwd=folder, env=environment, capture_output=True, text=True
        )

    def _command(self) -> list[str]:
        if self.language == "python":
            return [sys.executable, "-c", self.code]
        program, *arguments = shlex.split(self.code)
        assert program in {"tracer", "python"}, self.code
        return [sys.executable, *(["-m", "tracer"] if program == "tracer" else []), *arguments]


def examples(page: Path) -> list[Example]:
    """Every example of a page, in its order."""
    blocks = _BLOCK.finditer(page.read_text())
    return [example for block in blocks for example in _of(block[1], block[2])]


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
    return folder


def refresh(page: Path) -> None:
    """Write the outputs of today's code where the page shows an output."""
    with tempfile.TemporaryDirectory() as name:
        folder, text = folder_of_examples(Path(name)), page.read_text()
        for example in examples(page):
            result = example.run(folder)
            if result.returncode:
                print(f"{page}: {example.code}\n{result.stderr}", file=sys.stderr)
            elif example.shown:
                lines = (line.rstrip() for line in result.stdout.rstrip("\n").split("\n"))
                text = text.replace(example.shown, "\n".join(lines), 1)
        page.write_text(text)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        refresh(Path(argument))
