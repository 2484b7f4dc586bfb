"""The commands that a user gives a model of others, and what they may answer."""

import re
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np

from tracer.graph.loading import open_model
from tracer.inputs.request import request_for

TRACE, QUANTISED = "times.trace", "int8.onnx"


@dataclass(frozen=True)
class Command:
    """`args` with `{model}` and `{feeds}`. It is left out without the file `needs` of another.

    `dims`: whether it takes `--dim`.
    """

    name: str
    args: tuple[str, ...]
    needs: str = ""
    dims: bool = True


COMMANDS = (
    Command("count", ("count", "{model}", "--json")),
    Command("profile", ("profile", "{model}", "--runs", "5", "--no-roofline", "-o", TRACE)),
    Command(
        "report", ("report", TRACE, "-o", "t.html", "-o", "t.png", "-o", "t.csv"), TRACE, False
    ),
    Command("against", ("interpret", "{model}", "--against", "ort", "--runs", "1")),
    Command("fusions", ("fusions", "{model}", "--json")),
    Command("compare", ("compare", "{model}", "{model}@ort:none", "--rounds", "2", "--runs", "2")),
    Command(
        "quantize", ("quantize", "{model}", "--calibrate", "{feeds}", "-o", QUANTISED), "", False
    ),
    Command("sums", ("interpret", QUANTISED, "--accumulator", "16"), QUANTISED),
)

REASONS = {
    "no kernel": r"DynamicQuantizeLSTM.*has no implementation",
    "is int8": r"is quantised already|already quantised|quantized already",
    "ort's quantiser": r"onnxruntime's quantizer",
}
"""Answers that a user accepts although the command does not do what was asked: onnxruntime's own
operator without a kernel of ours, a model that is quantised, and bugs of onnxruntime's tool."""


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
    if "{feeds}" in command.args and not feeds.exists():
        chosen = dict(each.rsplit("=", 1) for each in model.dims)
        fed = {name: int(size) for name, size in chosen.items()}
        np.savez(feeds, **request_for(path, open_model(path), None, fed).feeds().feeds)
    args = [each.format(model=path, feeds=feeds) for each in command.args]
    dims = [word for dim in model.dims for word in ("--dim", dim)]
    begun = time.monotonic()
    limits = ["--max-seconds", str(limit)] if command.name != "report" else []
    sizes = dims if command.dims else []
    result = subprocess.run(
        [sys.executable, "-m", "tracer", *args, *sizes, *limits, "--force"],
        capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    seconds = time.monotonic() - begun
    return Answer(_word(result), seconds, result.stdout, result.stderr)


def _word(result):
    if result.returncode == 0:
        return "ok"
    for word, pattern in REASONS.items():
        if re.search(pattern, result.stderr):
            return word
    return "WRONG"
