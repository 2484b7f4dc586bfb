"""The commands that a user gives a model of others, and what they may answer."""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracer.graph.loading import open_model
from tracer.inputs.request import request_for

CHECKOUT = Path(__file__).parents[2]
TRACE, QUANTISED = "times.trace", "int8.onnx"


@dataclass(frozen=True)
class Command:
    """`args` with `{model}` and `{feeds}`. It is left out without the file `needs` of another.

    `sized`: whether it takes `--dim` and `--inputs`.
    """

    name: str
    args: tuple[str, ...]
    needs: str = ""
    sized: bool = True


COMMANDS = (
    Command("count", ("count", "{model}", "--json")),
    Command("profile", ("profile", "{model}", "--runs", "5", "--no-roofline", "-o", TRACE)),
    Command(
        "report", ("report", TRACE, "-o", "t.html", "-o", "t.png", "-o", "t.csv"), TRACE, False
    ),
    Command("against", ("interpret", "{model}", "--against", "ort", "--runs", "1")),
    Command("fusions", ("fusions", "{model}", "--json")),
    Command(
        "compare",
        ("compare", "{model}", "{model}@ort:none", "--sessions", "2", "--precision", "100%"),
    ),
    Command(
        "quantize", ("quantize", "{model}", "--calibrate", "{feeds}", "-o", QUANTISED), "", False
    ),
    Command("sums", ("interpret", QUANTISED, "--accumulator", "16"), QUANTISED),
)

REASONS = {
    "in bodies": r"nothing in it was quantised: .* in bodies",
    "no kernel": r"ha(s|ve) no implementation here",
    "refused": r"onnxruntime cannot quantise it: .* \(at node",
    "is int8": r"is quantised already|already quantised|quantized already",
}
"""Answers that a user accepts although the command does not do what was asked: all work is in
bodies, which onnxruntime's tool does not quantise; an operator has no kernel of ours; that tool
fails, at a node that is named; the model is quantised already."""


@dataclass(frozen=True)
class Answer:
    """How a command ended: `word` is `ok`, a key of REASONS, or WRONG."""

    word: str
    seconds: float
    out: str
    err: str


def answered(command, model, path, folder, limit):
    """Runs a command in `folder`; None where what it needs was not made."""
    if command.needs and not (folder / command.needs).exists():
        return None
    feeds = folder / "feeds.npz"
    if not feeds.exists():
        np.savez(feeds, **feeds_of(model, path))
    args = [each.format(model=path, feeds=feeds) for each in command.args]
    limits = ["--max-seconds", str(limit)] if command.name != "report" else []
    begun = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "tracer", *args, *_sizes(command, model, feeds), *limits, "--force"],
        capture_output=True, text=True, cwd=folder, env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip
    seconds = time.monotonic() - begun
    return Answer(_word(result), seconds, result.stdout, result.stderr)


def _sizes(command, model, feeds):
    if not command.sized:
        return []
    if model.scalars:
        return ["--inputs", str(feeds)]
    return [word for dim in model.dims for word in ("--dim", dim)]


def feeds_of(model, path, seed=0):
    """Random inputs of the sizes that were set, or usual ones; scalars as they were set."""
    opened = open_model(path)
    sizes = {name: int(size) for name, size in (each.rsplit("=", 1) for each in model.dims)}
    feeds = dict(request_for(path, opened, None, sizes, seed=seed).feeds().feeds)
    for name, value in model.scalars:
        feeds[name] = np.full_like(feeds[name], value)
    return feeds


def _word(result):
    if result.returncode == 0:
        return "ok"
    for word, pattern in REASONS.items():
        if re.search(pattern, result.stderr):
            return word
    return "WRONG"
