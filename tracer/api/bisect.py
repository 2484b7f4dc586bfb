"""`tracer.bisect`: the first release, file or revision in which a model is slower or broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.api.compare import SideSettings
from tracer.support.arguments import FLAG, TEXT, Rule, maybe, option, part, several

if TYPE_CHECKING:
    from tracer.analyzers.compare.bisection import Bisection
    from tracer.exporters.subject import ModelSource
    from tracer.support.tolerance import Tolerance

_FAULTS = ("slower", "values", "crash")
_OTHER = ("batch", "threads", "train", "backward", "device")
_ROW = "Releases, files or revisions"

_Settings: Any = make_dataclass(
    "_Settings",
    [
        ("batch", int | None, _calls.batch("1")),
        ("threads", int, _calls.threads(group=_calls.RUNS, common=True)),
        *(
            (each.name, each.type, field(default=each.default,
             default_factory=each.default_factory, metadata=each.metadata))
            for each in fields(SideSettings)
            if each.name not in _OTHER
        ),
    ],
)  # fmt: skip
"""The options of a comparison that a row has too, of one batch size and number of threads."""


@dataclass(frozen=True)
class BisectArguments(_calls.Contained):
    """The arguments of `bisect`."""

    sides: Sequence[ModelSource]
    _: KW_ONLY
    ort: str | None = option(
        "Releases of onnxruntime: a range, of which the newest of each minor version are taken, as "
        "1.17:1.31 or 1.17:, or a list, as 1.17.3,1.20.1.",
        None, group=_ROW, rule=maybe(TEXT), reads=(), metavar="RELEASES", common=True,
    )  # fmt: skip
    every: bool = option("Take every release of a range.", False, group=_ROW, rule=FLAG)
    good: str | None = option(
        "Git revision at which FILE.py:NAME was good: its exports are compared from there on.",
        None, group=_ROW, rule=maybe(TEXT), reads=(), metavar="REVISION", common=True,
    )  # fmt: skip
    bad: str = option("Last revision.", "HEAD", group=_ROW, rule=TEXT, metavar="REVISION",
                      shown=True)  # fmt: skip
    all: bool = option(
        "Measure all, not some first and then those around a change.", False, group=_ROW,
        rule=FLAG, common=True,
    )  # fmt: skip
    faults: Sequence[str] = option(
        "What to look for: slower, values (other ones than the first has), crash (or another "
        "refusal to run).  [default: all three]",
        _FAULTS, group=_ROW, flag="--fault", common=True, metavar="slower,values,crash",
        rule=several(Rule(" or ".join(_FAULTS), lambda v: v in _FAULTS)),
        reads=("words", *_FAULTS),
    )  # fmt: skip
    fail_above: float = option(
        "Call one slower if it is shown to be slower by more than this, e.g. 5%.", 0.02,
        group=_ROW, reads=("percent",), typed="2%", common=True,
    )  # fmt: skip
    settings: SideSettings = part(_Settings, SideSettings(), build=SideSettings)
    tolerance: Tolerance | None = None


@_calls.contained(BisectArguments)
def bisect(call: BisectArguments) -> Bisection:
    """Finds the first release of onnxruntime in which a model is slower, differs, or fails.

    `sides` is an ONNX model, or FILE.py:NAME, and `ort` names the releases: a range or a list. pip
    downloads each once. Without `ort`, `sides` are ONNX files in their order, such as exports, and
    the first with each of `faults` is found among them. With `good`, they are the exports of
    FILE.py:NAME at the git revisions from there to `bad` (first parents), each from a worktree that
    is removed again.

    Each has a process of its own. Up to 8 are measured at once, in turns; of more, 8 from the first
    to the last, and then those around the first change between two of them, until it lies between
    neighbours. What changes and changes back between those that are measured stays unseen; with
    `all`, all are measured. One is slower if the interval of its ratio to the one before lies above
    1 + `fail_above`, and its p-value, adjusted by Holm's method over all whole runs and layers, is
    below 1 %. Values are those that differ from the first's by more than `tolerance`.

    Runs in a child process, within `seconds` and `process_bytes` of `limits`, or with `in_process`
    in this one. Raises UsageError where fewer than two are named, the error of the first where none
    runs, and the other errors of `tracer.errors`.

    >>> import tracer
    >>> files = ["models/lenet/lenet.onnx", "models/lenet/lenet.int8.onnx"]
    >>> tracer.bisect(files, faults=["crash"])
    Bisection(2 files: no change)
    """
    from tracer.api import _bisect

    return _bisect.bisect(call)
