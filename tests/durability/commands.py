"""Commands that write a file, and what makes that file whole."""

import json
import sqlite3
import xml.etree.ElementTree
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import matplotlib.image
import onnx
import pandas as pd

import tracer

ROOT = Path(__file__).parents[2]
LENET, NARROW = (
    str(ROOT / "models" / "lenet" / name) for name in ("lenet.onnx", "lenet.int8.onnx")
)
NET = f"{ROOT / 'models' / 'lenet' / 'torch_net.py'}:LeNet"


@dataclass(frozen=True, slots=True)
class Command:
    """Arguments of `tracer` without `-o`, and the name of the file that it writes.

    `content` reads the file, and fails for a part of one. It returns the same for every run, or
    None for a command that measures times. A command that `resumes` goes on from its file, and one
    that `compiles` begins without compiled code.
    """

    arguments: tuple[str, ...]
    output: str
    content: Callable[[Path], object]
    resumes: bool = False
    compiles: bool = False

    @property
    def name(self) -> str:
        return f"{self.arguments[0]} -o {self.output}"

    def line(self, path: Path) -> Sequence[str]:
        """All arguments, for an output that may be there already."""
        force = () if self.resumes else ("--force",)
        return (*self.arguments, "-o", str(path), *force)


def tables(path: Path) -> object:
    """All rows of all tables of a what-if, in their order."""
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


_COUNTS = ["node", "bits_observed", "overflow_outputs"]
"""Columns without times."""


def _timed(read: Callable[[Path], object]) -> Callable[[Path], object]:
    def content(path: Path) -> None:
        assert read(path) is not None

    return content


def _complete(path: Path) -> object:
    trace = tracer.load(path)
    return None if trace.is_incomplete else trace


def _overflow(path: Path) -> object:
    return tracer.load(path).nodes[_COUNTS].to_csv()


def _counted(path: Path) -> object:
    return pd.read_csv(path)[_COUNTS].to_csv()


def _model(path: Path) -> object:
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return path.read_bytes()


def _text(parse: Callable[[str], object]) -> Callable[[Path], object]:
    return lambda path: parse(path.read_text())


SWEEP = Command(
    ("whatif", NARROW, "--accumulator", "16:24", "--data", "digits", "--limit", "60"),
    "w.trace",
    tables,
    True,
)

COMMANDS = (
    Command(("profile", LENET, "--runs", "20", "--no-roofline"), "p.trace", _timed(_complete)),
    Command(
        ("profile", LENET, "--runs", "20", "--no-roofline"),
        "p.png",
        _timed(matplotlib.image.imread),
    ),
    Command(
        ("compare", LENET, NARROW, "--sessions", "4", "--precision", "100%", "--no-numbers"),
        "c.json",
        _timed(_text(json.loads)),
    ),
    Command(("interpret", NARROW, "--accumulator", "16"), "i.trace", _overflow),
    Command(
        ("interpret", NARROW, "--accumulator", "16"),
        "i.svg",
        _text(xml.etree.ElementTree.canonicalize),
    ),
    Command(
        ("quantize", LENET, "--calibrate", "digits", "--limit", "64", "--test-limit", "64"),
        "q.onnx",
        _model,
    ),
    Command(("export", NET), "e.onnx", _model),
    Command(("count", LENET), "n.csv", lambda path: pd.read_csv(path).to_csv()),
    Command(("interpret", NARROW, "--accumulator", "16"), "i.csv", _counted, compiles=True),
    Command(("fusions", LENET), "f.json", _timed(_text(json.loads))),
)
