"""Write a page of docs/experiments: Markdown and its pictures."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.errors import TracerError
from tracer.records.environment import observe

FOLDER = Path("docs/experiments")


@dataclass(frozen=True, slots=True)
class Page:
    """`parts` are paragraphs, tables and links to pictures; `pictures` are files by name."""

    name: str
    title: str
    parts: Sequence[str]
    pictures: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """The page in Markdown."""
        return "\n\n".join([f"# {self.title}", *self.parts, _machine()]) + "\n"

    def write(self, folder: Path) -> None:
        """Writes the page and its pictures, and prints its path."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.pictures.items():
            (folder / name).write_bytes(data)
        path = folder / f"{self.name}.md"
        path.write_text(self.text, "utf-8")
        print(f"wrote {path}", flush=True)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the common options; `doc` is the docstring of the module."""
    options = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    options.add_argument("--out", type=Path, default=FOLDER, help="folder of the page")
    options.add_argument("--threads", type=int, default=1, help="threads within an operator")
    options.add_argument(
        "--card", type=Path, metavar="FILE",
        help="only add the columns of a card, which tests.card measured, to the page",
    )  # fmt: skip
    return options


def run(main: Callable[[], None]) -> None:
    """Runs an experiment from the command line; an error of tracer is one line."""
    try:
        main()
    except TracerError as error:
        raise SystemExit(f"error: {error}") from error


def code(*lines: str) -> str:
    """Returns a code block."""
    return "\n".join(["```", *lines, "```"])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table; columns are numbers, or text if the header ends in a space."""
    ends = ["---" if name.endswith(" ") else "---:" for name in header]
    lines = [[name.strip() for name in header], ends, *([str(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def records(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns a table of records: `columns` has a header and the format string of its cells."""
    return table(tuple(columns), ([c.format_map(row) for c in columns.values()] for row in rows))


def bullets(*points: str) -> str:
    """Returns a list."""
    return "\n".join(f"- {point}" for point in points)


def folded(summary: str, content: str) -> str:
    """Returns content that is shown on a click."""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def picture(name: str, text: str) -> str:
    """Returns a link to a picture of the page."""
    return f"![{text}]({name})"


def environment() -> dict[str, str]:
    """Returns the machine and the versions, by name."""
    machine = observe()
    facts = {
        "CPU": f"{machine.cpu}, {machine.cpu_count} available",
        "instructions": ", ".join(machine.cpu_flags) or "none of note",
        "memory": f"{machine.memory_bytes / 2**30:.1f} GiB" if machine.memory_bytes else "unknown",
        "GPU": ", ".join(machine.gpus) or "none",
        "CUDA": machine.cuda or "none",
        "OS": machine.distribution or machine.os.partition("-")[0],  # without the kernel's build
        "Python": machine.python,
    }
    return facts | dict(machine.packages)


def _machine() -> str:
    facts = environment()
    versions = (
        f"{n} {facts[n]}" for n in ("Python", "onnxruntime", "torch", "chainer") if n in facts
    )
    return f"Measured on {facts['CPU']}; {', '.join(versions)}."
