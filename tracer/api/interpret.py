"""Runs an ONNX model in the reference interpreter, with or without narrow accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tracer.api._calls import by_rules as contained
from tracer.errors import UsageError
from tracer.support.progress import Progress, silent

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

    from tracer.accumulators.spec.any_accumulator import AnyAccumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.executors.protocol import Receive
    from tracer.exporters.subject import Subject
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.inputs.request import InputPaths, Samples
    from tracer.limits import Limits
    from tracer.records.trace import Trace
    from tracer.support.tolerance import Tolerance

_NARROW = "Set an accumulator as well, as in --accumulator 16."


class Receiver(Protocol):
    """Takes the outputs of every batch of one model."""

    def start(self, model: Model) -> None:
        """Called before the run; raises an error of `tracer.errors` to prevent it."""

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Called with the feeds and the outputs of every batch."""


@contained()
def interpret(
    model: Subject,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
    runs: int = 5,
    warmup: int | None = 1,
    threads: int = 0,
    against: Literal["ort"] | None = None,
    fallback: Literal["ort"] | None = None,
    register: Sequence[str | Path] = (),
    tolerance: Tolerance | None = None,
    accumulator: int | str | AnyAccumulator | Policy | None = None,
    fixed: str | None = None,
    operands: str | None = None,
    by_sample: bool = False,
    limits: Limits | None = None,
    convention: str = "plain",
    energy: str | None = None,
    progress: Progress | None = None,
    receive: Receive | None = None,
    receivers: Sequence[Receiver] = (),
    cluster: Client | str | None = None,
    note: Callable[[str], None] | None = None,
    in_process: bool = False,
) -> Trace:
    """Runs `model` node by node in the reference interpreter, for one batch size.

    The node table has the columns of `profile`, and statistics of each node's values. With
    `against="ort"`, it has the differences from onnxruntime without optimisation; `run.values`
    says which nodes exceed `tolerance`. `runs` inferences are timed after `warmup` others;
    None warms up once where an inference takes less than a second.

    Raises ModelError, which names all operators that the interpreter lacks; with
    `fallback="ort"`, onnxruntime computes their nodes, one at a time, and a note names them.
    `register` are libraries of custom operators, which `fallback` and `against` then have.

    With an `accumulator`, sums are computed in narrow accumulators, in one inference for each
    batch, and the overflow columns are filled instead. An accumulator is a width, a policy as text
    (`conv1=18,*=17`), the path of a TOML file, or an object of `tracer.accumulators`; `fixed` are
    the fixed-point formats of float operands, as in `8:5/8:7`; `operands` the formats that those of
    float accumulators are cast to, as in `fp8-e4m3` or `conv*=fp8-e4m3,*=bf16`.

    `energy` names the model of `analyzers.energy` that fills the column `energy`, per run. The
    default is `lab` with an `accumulator`, and no energies without one.

    `feeds` are chosen as in `profile`. With an `accumulator`, they may be many .npz files and
    test_data_set folders, which are split into batches of `batch` rows, or `Samples` of a data set
    in batches of `batch` (64). With `by_sample`, samples run one at a time, and
    `run.sums_by_sample` says what overflowed in each. `receive` is called with the feeds and the
    outputs of every batch, and so are `receivers`, which are called with the model before.

    `cluster` shares the batches of a data set out to other processes, as in `what_if`; the counts
    are the same. Nothing can receive the batches then.

    The model runs in a child process, within `limits`, or with `receivers` or `in_process` in this
    one. Raises the errors of `tracer.errors`, among them LimitError for a run beyond `limits`.
    """
    from tracer.api import _interpret

    _check_combination(accumulator is not None, against, batch, by_sample)
    if register and not (against or fallback):
        raise UsageError(
            "libraries of operators are for onnxruntime, and nothing runs it here",
            "Set a fallback as well: --fallback ort.",
        )
    return _interpret.interpret(
        model, batch, dims, feeds, seed, runs, warmup, threads, against, fallback, register,
        tolerance, accumulator, fixed, operands, by_sample, limits, convention, energy,
        progress or silent, receive, receivers, cluster, note,
    )  # fmt: skip


def _check_combination(
    is_narrow: bool, against: str | None, batch: int | None, by_sample: bool
) -> None:
    if against is not None and is_narrow:
        raise UsageError("a narrow accumulator differs from onnxruntime", "Leave out one of them.")
    if by_sample and not is_narrow:
        raise UsageError("only narrow accumulators have statistics by sample", _NARROW)
    if by_sample and batch not in (None, 1):
        raise UsageError(f"statistics by sample in batches of {batch}", "Leave out the batch.")
