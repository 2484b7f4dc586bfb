"""The commands that a mutant goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

from tests.fuzz.mutants import Mutant
from tests.fuzz.seeds import LENET, TRACES
from tests.hostile.samples import samples
from tracer.analyzers.views import formats
from tracer.records.trace import Trace

OUTPUTS = "written"
"""Files that a command is asked to write begin with it; nothing else may be left."""

ENDS = ("--max-seconds", "8", "--max-memory", "1024")
SMALL = ("--max-tensor", "64", "--max-live", "256", "--max-trips", "1000", *ENDS)
ONE = ("--threads", "1")
FORMATS = sorted(formats(Trace))
DATA = "m.npz"
"""Samples for the inputs of a mutant that is a model."""
BITS = ("4", "8", "12", "16", "20")
ORDERS = ("sequential", "tree", "maddubs")
SUMS = (
    (), (), ("--bias", "last"), ("--zero-points", "after"), ("--product-bits", "12"),
    ("--product-shift", "2"), ("--magnitude",), ("--by", "sample"), ("--by", "module"),
    ("--energy", "aladdin40"),
)  # fmt: skip
MODES = ("saturate", "symmetric", "wrap", "zero", "error")
TRIED = ("--accumulator", "8:10", "--data", DATA, "--metric", "agreement", "--limit", "2")
CALIBRATED = ("--calibrate", DATA, "--limit", "2", "--batch", "2", "-o", f"{OUTPUTS}.onnx")
COMPARED = ("csv", "md", "json", "svg")
GROUPINGS = ("op", "module", "source", "kernel", "sample")
OTHERS = ("profile", "sums", "framework", "count")
ENDINGS = {
    "model": "onnx", "quantized": "onnx", "trace": "trace", "arrays": "npz", "tensor": "pb",
    "policy": "toml", "energy": "toml", "certificate": "json",
}  # fmt: skip

Command = tuple[str, ...]


def name(mutant: Mutant) -> str:
    """Returns the path of the file of a mutant, in the folder that its commands run in."""
    folder = "test_data_set_0/input_0" if mutant.kind == "tensor" else "m"
    return f"{folder}.{ENDINGS[mutant.kind]}"


def store(mutant: Mutant, folder: Path) -> None:
    """Writes the file of a mutant, and samples for it where a command reads them."""
    file = folder / name(mutant)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(mutant.content)
    if any(DATA in command for command in commands(mutant)):
        np.savez(folder / DATA, **_samples(mutant.content))


def _samples(content: bytes) -> Mapping[str, Any]:
    """Small numbers for the inputs of a model; none for what is no model."""
    try:
        zeros = samples(onnx.ModelProto.FromString(content))
    except Exception:  # protobuf's DecodeError
        return {}
    random = np.random.default_rng(3)
    return {key: random.integers(0, 100, x.shape).astype(x.dtype) for key, x in zeros.items()}


def commands(mutant: Mutant) -> Sequence[Command]:
    """Returns the commands, which are drawn by the mutant's number alone."""
    random, path, lenet = Random(mutant.draws), name(mutant), str(LENET)
    match mutant.kind:
        case "model":
            return (
                ("count", path, *ENDS),
                ("interpret", path, *ONE, *SMALL),
                ("interpret", path, "--accumulator", "16", *ONE, *SMALL),
                ("profile", path, "--runs", "1", "--warmup", "0", "--no-roofline", *ONE, *ENDS),
                *random.choice(_rare(path)),
            )
        case "quantized":
            narrow = ("--order", random.choice(ORDERS), "--overflow", random.choice(MODES[:-1]))
            sums = (random.choice(BITS), *random.choice(SUMS), "--overflow", random.choice(MODES))
            sampled = random.choice((
                ("interpret", path, "--accumulator", "10", *narrow, "--data", DATA, *ONE, *SMALL),
                ("whatif", path, *TRIED, *narrow, *ONE, *SMALL),
            ))  # fmt: skip
            return ("interpret", path, "--accumulator", *sums, *ONE, *SMALL), sampled
        case "trace":
            other = str(TRACES / f"{random.choice(OTHERS)}.trace")
            return (
                ("report", path),
                ("report", path, "--by", random.choice(GROUPINGS), "--notes"),
                ("report", path, "-o", f"{OUTPUTS}.{random.choice(FORMATS)}"),
                ("report", path, other),
                ("compare", path, other, "-o", f"{OUTPUTS}.{random.choice(COMPARED)}"),
            )
        case "arrays":
            return (("interpret", lenet, "--accumulator", "16", "--inputs", path, *ONE, *SMALL),)
        case "tensor":
            return (("interpret", lenet, "--inputs", str(Path(path).parent), *ONE, *SMALL),)
        case "policy":
            return (
                ("count", lenet, "--accumulator", path, *ENDS),
                ("interpret", lenet, "--accumulator", path, *ONE, *SMALL),
            )
        case "energy":
            return (("count", lenet, "--energy", path, "--accumulator", "16", *ENDS),)
        case "certificate":
            data = ("--data", "digits", "--limit", "2")
            return (("interpret", lenet, "--check-certificate", path, *data, *ONE, *SMALL),)
    raise AssertionError(mutant.kind)


def _rare(path: str) -> Sequence[Sequence[Command]]:
    """What a part of the models goes through besides: commands that take long."""
    fixed = ("--fixed", "8:5/8:7", "--accumulator", "12")
    return (
        (),
        (("fusions", path, *ONE, *ENDS),),
        (("quantize", path, *CALIBRATED, *ENDS),),
        (("interpret", path, *fixed, *ONE, *SMALL),),
    )
