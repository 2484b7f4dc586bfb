"""A page of docs/experiments: Markdown, and the pictures beside it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracer.errors import TracerError
from tracer.records.environment import observe

FOLDER = Path("docs/experiments")


@dataclass(frozen=True, slots=True)
class Page:
    """`parts` are paragraphs, tables and pictures' links; `pictures` are files by their names."""

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
    """Returns the options every experiment has; `doc` is what its module says of itself."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--out", type=Path, default=FOLDER, help="folder of the page")
    made.add_argument("--threads", type=int, default=1, help="threads within an operator")
    return made


def run(main: Callable[[], None]) -> None:
    """Runs an experiment from the command line; what a user did wrong is told in one line."""
    try:
        main()
    except TracerError as error:
        raise SystemExit(f"error: {error}") from error


def code(*lines: str) -> str:
    """Lines as they are typed."""
    return "\n".join(["```", *lines, "```"])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table; columns whose header ends in a space are text, the others numbers."""
    ends = ["---" if name.endswith(" ") else "---:" for name in header]
    lines = [[name.strip() for name in header], ends, *([str(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullets(*points: str) -> str:
    """Returns a list."""
    return "\n".join(f"- {point}" for point in points)


def folded(summary: str, content: str) -> str:
    """What is shown when it is asked for."""
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def picture(name: str, what: str) -> str:
    """Returns a picture of the page."""
    return f"![{what}]({name})"


def environment() -> dict[str, str]:
    """Returns the machine and the versions, by what they are called."""
    seen = observe()
    found = {
        "CPU": f"{seen.cpu}, {seen.cpu_count} available",
        "instructions": ", ".join(seen.cpu_flags) or "none of note",
        "memory": f"{seen.memory_bytes / 2**30:.1f} GiB" if seen.memory_bytes else "unknown",
        "GPU": ", ".join(seen.gpus) or "none",
        "CUDA": seen.cuda or "none",
        "OS": seen.os.partition("-")[0],  # what follows is the build of one machine's kernel
        "Python": seen.python,
    }
    return found | dict(seen.packages)


def _machine() -> str:
    seen = environment()
    versions = (
        f"{n} {seen[n]}" for n in ("Python", "onnxruntime", "torch", "chainer") if n in seen
    )
    return f"Measured on {seen['CPU']}; {', '.join(versions)}."
