"""The commands that take a model, or what is made of it, and how they meet a hostile one."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from tests.hostile.corpus import CASES, ENDLESS, relu
from tests.hostile.samples import SAMPLES, samples
from tests.hostile.trial import excesses, faults, limits

MODEL, TRACE, SUMS = "m.onnx", "times.trace", "sums.trace"
DATA = "x.npz"
_SQUARE = {("quantize", "2,000 outputs of a Split")}
"""What takes onnxruntime's quantizer a time that grows with the square of the tensors."""


@dataclass(frozen=True)
class Command:
    """`args` of a command; `needs` is a file, made by an earlier command, without which none runs.

    `codes` are exit codes that are right beside those of every command. `views` take no limits.
    """

    name: str
    args: tuple[str | int, ...]
    needs: str = MODEL
    codes: tuple[int, ...] = ()
    views: bool = False

    def line(self, endless):
        """The arguments of the command line, with limits."""
        return (*self.args, *(() if self.views else limits(endless)))


_FEW = ("--runs", 2, "--warmup", 1)
COMMANDS = (
    Command("count", ("count", MODEL, "--by", "op", "--energy", "lab")),
    Command("profile", ("profile", MODEL, *_FEW, "--no-roofline", "-o", TRACE)),
    Command("profile --replay", ("profile", MODEL, *_FEW, "--replay", 2, "--optimization", "none",
                                 "--by", "op")),
    Command("interpret", ("interpret", MODEL, "--runs", 1)),
    Command("interpret --against", ("interpret", MODEL, "--against", "ort"), codes=(1,)),
    Command("interpret --accumulator", ("interpret", MODEL, "--accumulator", 16, "-o", SUMS)),
    Command("whatif", ("whatif", MODEL, "--accumulator", "14:15", "--data", DATA,
                       "--metric", "agreement")),
    Command("quantize", ("quantize", MODEL, "--calibrate", DATA, "-o", "q.onnx")),
    Command("fusions", ("fusions", MODEL)),
    Command("diff", ("diff", MODEL, MODEL)),
    Command("extract --fault", ("extract", MODEL, "--fault", "crash", "--shrink-seconds", 1,
                                "-o", "fault.py"), codes=(1,)),
    Command("bisect", ("bisect", MODEL, MODEL, "--fault", "crash"), codes=(1,)),
    Command("compare", ("compare", MODEL, MODEL, "--sessions", 2,
                        "--precision", "100%", "--threads", 1), codes=(1,)),
    Command("compare a trace", ("compare", TRACE, TRACE), needs=TRACE, codes=(1,)),
    Command("export", ("export", MODEL, "--input-shape", "2,3", "-o", "e.onnx"), codes=(2,)),
    Command("export --to", ("export", MODEL, "--to", "qonnx", "-o", "qo.onnx"), codes=(2,)),
    Command("tune", ("tune", MODEL, "--threads", 1, "--apply", "memory_pattern=off",
                     "-o", "tuned.json"), codes=(2,)),
    Command("narrow", ("narrow", MODEL, "--bits", 16, "--data", DATA, "--metric", "noise",
                       "-o", "n.onnx"), codes=(2,)),
    Command("report", ("report", TRACE, "-o", "t.csv", "-o", "t.svg", "-o", "t.md", "-o", "t.json"),
            needs=TRACE, views=True),
    Command("report of both", ("report", TRACE, SUMS, "--by", "module"), needs=SUMS, views=True),
)  # fmt: skip


def meet(warm, name, commands=COMMANDS):
    """Runs commands on a model in turn; yields each with its outcome, faults and excesses."""
    with TemporaryDirectory(prefix="hostile-") as folder:
        store(CASES[name](), folder)
        for command in commands:
            if Path(folder, command.needs).exists():
                endless = name in ENDLESS or (command.name, name) in _SQUARE
                outcome = warm.run(folder, *command.line(endless))
                named = Path(command.needs).suffix
                wrong = faults(outcome, named, endless=endless, codes=command.codes)
                yield command, outcome, wrong, excesses(outcome, endless=endless)


def warmed_up(warm, commands=COMMANDS):
    """Measures the machine once, so that no later command does."""
    with TemporaryDirectory(prefix="hostile-") as folder:
        store(relu([2, 3]), folder)
        for command in commands:
            outcome = warm.run(folder, *command.args)
            assert outcome.code in (0, 2, 3, *command.codes), outcome


def store(made, folder):
    """Writes a model, and data for its inputs, to an empty folder."""
    content = made if isinstance(made, bytes) else made.SerializeToString()
    Path(folder, MODEL).write_bytes(content)
    np.savez(Path(folder, DATA), **_data(made))


def _data(made):
    """Samples for the inputs of a model, and some for an input `x` where there is none."""
    own = samples(made) if isinstance(made, onnx.ModelProto) else {}
    return {"x": np.zeros((SAMPLES, 3), np.float32)} | own
