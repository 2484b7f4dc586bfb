"""The commands that a mutant goes through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from analyzers.views import formats
from tests.fuzz.mutants import Mutant
from tests.fuzz.seeds import LENET, TRACES
from tracer.records.trace import Trace

OUTPUTS = "written"
"""Files that a command is asked to write begin with it; nothing else may be left."""

ENDS = ("--max-seconds", "8", "--max-memory", "1024")
SMALL = ("--max-tensor", "64", "--max-live", "256", "--max-trips", "1000", *ENDS)
ONE = ("--threads", "1")
FORMATS = sorted(formats(Trace))
COMPARED = ("csv", "md", "json", "svg")
GROUPINGS = ("op", "module", "source", "kernel", "sample")
OTHERS = ("profile", "sums", "framework", "count")
ENDINGS = {
    "model": "onnx", "trace": "trace", "arrays": "npz", "tensor": "pb", "policy": "toml",
    "energy": "toml", "certificate": "json",
}  # fmt: skip

Command = tuple[str, ...]


def name(mutant: Mutant) -> str:
    """Returns the path of the file of a mutant, in the folder that its commands run in."""
    folder = "test_data_set_0/input_0" if mutant.kind == "tensor" else "m"
    return f"{folder}.{ENDINGS[mutant.kind]}"


def store(mutant: Mutant, folder: Path) -> None:
    """Writes the file of a mutant."""
    file = folder / name(mutant)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(mutant.content)


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
            )
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
