"""`tracer.extract`: a part of a model with its real inputs, or the smallest proof of a fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support.arguments import PATH, RULES, TEXT, amount, either, maybe, option, several

if TYPE_CHECKING:
    from tracer.exporters.subject import ModelSource
    from tracer.extraction import Extracted
    from tracer.support.tolerance import Tolerance

_PART, _FAULT = "Part", "Fault"
_NAMES = RULES["register"]
FAULTS = ("wrong", "crash", "slower", "overflow")


@dataclass(frozen=True)
class ExtractArguments(_calls.Contained):
    """The arguments of `extract`."""

    GROUPS = (_PART, _FAULT, _calls.INPUT, "Output")

    model: ModelSource
    output: str | Path | Sequence[str | Path] = option(
        "What to write: a folder or FILE.onnx for a part, FILE.py and FILE.md for a fault. "
        "Repeatable.",
        group="Output", flag="-o --output", rule=either(PATH, several(PATH)), multiple=True,
        reads=several(PATH).reads, common=True,
    )  # fmt: skip
    _: KW_ONLY
    node: Sequence[str] = option(
        "Node to cut out, by its name or that of an output. Repeatable.", (),
        group=_PART, rule=_NAMES, reads=(), multiple=True, metavar="NAME", common=True,
    )  # fmt: skip
    module: Sequence[str] = option(
        "Module to cut out. Repeatable.", (),
        group=_PART, rule=_NAMES, reads=(), multiple=True, metavar="NAME", common=True,
    )  # fmt: skip
    fault: str | None = option(
        "Fault to keep while the model is shrunk: wrong values, a crash or an error, a slower run, "
        "or sums that overflow.",
        None, group=_FAULT, rule=maybe(TEXT), reads=("choice", *FAULTS), common=True,
    )  # fmt: skip
    against: str | None = option(
        "What is right or faster: ort:none … ort:all, ort==1.20.1, ort==1.20.1:basic or "
        "interpreter.  [default: ort:none]",
        None, group=_FAULT, rule=maybe(TEXT), metavar="SIDE", common=True,
    )  # fmt: skip
    ort: str | None = option(
        "Release of onnxruntime that has the fault.  [default: the installed one]", None,
        group=_FAULT, rule=maybe(TEXT), metavar="RELEASE", common=True,
    )  # fmt: skip
    optimization: str = _calls.optimization("all", group=_FAULT)
    threads: int = _calls.threads(group=_FAULT)
    by: float = option(
        "How much slower a side must be.", 0.05, group=_FAULT, rule=amount(), reads=("percent",),
        typed="5%",
    )  # fmt: skip
    accumulator: str = option(
        "Accumulator that overflows.", "16", group=_FAULT, rule=TEXT, reads=(), metavar="SPEC"
    )
    shrink_seconds: float = option(
        "Seconds after which the smallest model so far is taken.", 300.0,
        group=_FAULT, rule=amount("seconds"),
    )  # fmt: skip
    batch: int | None = _calls.batch("1")
    dims: Mapping[str, int] | None = _calls.dims()
    inputs: str | Path | None = _calls.inputs(group=_calls.INPUT)
    seed: int = _calls.seed()
    force: bool = option("Overwrite files that exist.", False, group="Output")
    tolerance: Tolerance | None = None


@_calls.contained(ExtractArguments)
def extract(call: ExtractArguments) -> Extracted:
    """Writes a part of `model` with its real inputs, or the smallest model that has a fault.

    A part is named by `node` and `module`. Its `output` is a folder with
    `model.onnx`, or a file of another name, and beside it `test_data_set_0` with the values of a
    run without optimisation, as ONNX's own tests have them.

    With a `fault`, the model is shrunk while the fault stays, and a script that shows it goes to
    FILE.py, a report to FILE.md. The fault is one of onnxruntime, in the release `ort` at the level
    `optimization`, `against` another side within `tolerance`; overflow is the interpreter's.

    Raises ThresholdError where the model has no such fault, UsageError for names that it lacks, and
    the other errors of `tracer.errors`.

    >>> import tempfile, tracer
    >>> folder = tempfile.mkdtemp()
    >>> part = tracer.extract("models/lenet/lenet.onnx", [f"{folder}/conv"], node=["node_Conv_22"])
    >>> part.nodes
    1
    """
    from tracer.api import _extract

    return _extract.extract(call)
