"""Runs an ONNX model in the reference interpreter, with or without narrow accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.api import _calls
from tracer.errors import UsageError
from tracer.support.arguments import RULES, option, part

if TYPE_CHECKING:
    from pathlib import Path

    from distributed import Client

    from tracer.accumulators.spec.accumulator import AnyAccumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.executors.registry import Receive
    from tracer.exporters.subject import ModelSource
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.inputs.request import InputPaths, Samples
    from tracer.records.trace import Trace
    from tracer.support.tolerance import Tolerance

_NARROW = "Set an accumulator as well, as in --accumulator 16."


class Receiver(Protocol):
    """Takes the outputs of every batch of one model."""

    def start(self, model: Model) -> None:
        """Called before the run; raises an error of `tracer.errors` to prevent it."""

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Called with the feeds and the outputs of every batch."""


@dataclass(frozen=True)
class _Inputs(_calls.Inputs):
    inputs: Sequence[Path] = option(
        "Input values: an .npz file or a test_data_set folder; with --accumulator any number of "
        "them, and folders of them.  [default: random]",
        (), group=_calls.INPUT, multiple=True, rule=RULES["register"], common=True,
    )  # fmt: skip


@dataclass(frozen=True)
class InterpretArguments(_calls.Contained):
    """The arguments of `interpret`."""

    model: ModelSource
    _: KW_ONLY
    batch: int | None = _calls.batch("the model's own, 64 with --data")
    dims: Mapping[str, int] | None = _calls.dims()
    inputs: InputPaths | Samples = part(_Inputs, None, build=_calls.chosen_inputs)
    seed: int = _calls.seed()
    runs: int = option("Inferences to time, without --accumulator.", 5, group=_calls.RUNS, typed=1)
    warmup: int | None = 1
    threads: int = _calls.threads_of_interpreter(group=_calls.RUNS)
    against: Literal["ort"] | None = option(
        "Compare every node with onnxruntime; exit 1 if one differs by itself.", None,
        group=_calls.RUNS, reads=("choice", "ort"), common=True,
    )  # fmt: skip
    fallback: Literal["ort"] | None = option(
        "Compute the nodes that the interpreter has no operator for by onnxruntime.  [default: "
        "refuse the model]",
        None, group=_calls.RUNS, reads=("choice", "ort"),
    )  # fmt: skip
    register: Sequence[str | Path] = _calls.register(group=_calls.RUNS)
    energy: str | None = _calls.energy(
        f"{DEFAULT_ENERGY_MODEL} with --accumulator, else none", _calls.RUNS
    )
    tolerance: Tolerance | None = None
    optimization: str | None = None
    accumulator: int | str | AnyAccumulator | Policy | None = None
    fixed: str | None = None
    operands: str | None = None
    by_sample: bool = False
    convention: str = "plain"
    receive: Receive | None = None
    receivers: Sequence[Receiver] = ()
    cluster: Client | str | None = None
    note: Callable[[str], None] | None = None


@_calls.contained(InterpretArguments)
def interpret(call: InterpretArguments) -> Trace:
    """Runs `model` node by node in the reference interpreter, for one batch size.

    The node table has the columns of `profile`, and statistics of each node's values. With
    `against="ort"`, it has the differences from onnxruntime without optimisation; `run.values`
    says which nodes exceed `tolerance`. `runs` inferences are timed after `warmup` others;
    None warms up once where an inference takes less than a second.

    Raises ModelError, which names all operators that the interpreter lacks; with
    `fallback="ort"`, onnxruntime computes their nodes, one at a time, and a note names them.
    `register` are libraries of custom operators, which `fallback`, `against` and
    `optimization` then have.

    With an `accumulator`, sums are computed in narrow accumulators, in one inference for each
    batch, and the overflow columns are filled instead. An accumulator is a width, a policy as text
    (`conv1=18,*=17`), the path of a TOML file, or an object of `tracer.accumulators`; `fixed` are
    the fixed-point formats of float operands, as in `8:5/8:7`; `operands` the formats that those of
    float accumulators are cast to, as in `fp8-e4m3` or `conv*=fp8-e4m3,*=bf16`.

    With `optimization`, a level of onnxruntime, the graph that onnxruntime makes of the model is
    interpreted, here and not that of the file: fused, and quantised as its kernels are. Together
    with the accumulator of a processor (`x86-maddubs`), integer networks have that processor's
    bits.

    `energy` names the model of `analyzers.energy` that fills the column `energy`, per run. The
    default is `lab` with an `accumulator`, and no energies without one.

    `inputs` are chosen as in `profile`. With an `accumulator`, they may be many .npz files and
    test_data_set folders, which are split into batches of `batch` rows, or `Samples` of a data set
    in batches of `batch` (64). With `by_sample`, samples run one at a time, and
    `run.sums_by_sample` says what overflowed in each. `receive` is called with the feeds and the
    outputs of every batch, and so are `receivers`, which are called with the model before.

    `cluster` shares the batches of a data set out to other processes, as in `what_if`; the counts
    are the same. Nothing can receive the batches then.

    The model runs in a child process, within `limits`, or with `receivers` or `in_process` in this
    one. Raises the errors of `tracer.errors`, among them LimitError for a run beyond `limits`.

    >>> import tracer
    >>> model, digits = "models/lenet/lenet.int8.onnx", tracer.Samples("digits", 64)
    >>> trace = tracer.interpret(model, inputs=digits, accumulator=16)
    >>> int(trace.nodes["overflow_outputs"].sum())
    224396
    """
    from tracer.api import _interpret

    _check_combination(call)
    return _interpret.interpret(call)


def _check_combination(call: InterpretArguments) -> None:
    """Raises UsageError for arguments that exclude each other."""
    is_narrow = call.accumulator is not None
    if call.against is not None and is_narrow:
        raise UsageError("a narrow accumulator differs from onnxruntime", "Leave out one of them.")
    if call.by_sample and not is_narrow:
        raise UsageError("only narrow accumulators have statistics by sample", _NARROW)
    if call.by_sample and call.batch not in (None, 1):
        raise UsageError(f"statistics by sample in batches of {call.batch}", "Leave out the batch.")
    if call.register and not (call.against or call.fallback or call.optimization):
        raise UsageError(
            "libraries of operators are for onnxruntime, and nothing runs it here",
            "Set a fallback as well: --fallback ort.",
        )
    if call.cluster is not None and not is_narrow:
        raise UsageError(
            "workers share out the data of a count of overflows, and one batch is timed here",
            "Give --accumulator, or leave out --workers and --scheduler.",
        )
    if call.cluster is not None and (call.receive is not None or call.receivers):
        raise UsageError(
            "workers send statistics, and not the inputs and outputs of every batch",
            "Leave out the .npz, the folder and the certificate, or --workers and --scheduler.",
        )
