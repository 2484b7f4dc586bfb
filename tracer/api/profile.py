"""`tracer.profile`, `tracer.profile_framework`: measure a model; a node is a row of the Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.api.interpret import Receiver, interpret
from tracer.containment.activity import Progress
from tracer.errors import UsageError
from tracer.executors.settings import DEVICES, LOSSES, OPTIMIZERS
from tracer.support import arguments
from tracer.support.arguments import RULES, argument, instance, maybe, option, part, several, swept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracer.accumulators.spec.accumulator import AnyAccumulator
    from tracer.accumulators.spec.policy import Policy
    from tracer.exporters.subject import ModelSource
    from tracer.inputs.request import InputPaths, Samples
    from tracer.records.environment import Peaks
    from tracer.records.trace import Trace

_CODE = "Framework (FILE.py:NAME)"
_ARRAY = instance("numpy.ndarray")


@dataclass(frozen=True, kw_only=True)
class FrameworkOptions:
    """The arguments of `profile_framework` that only a model of a framework has."""

    framework: str | None = _calls.framework(group=_CODE)
    args: Mapping[str, object] | None = _calls.args(group=_CODE)
    weights: Path | None = _calls.weights(group=_CODE)
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = _calls.input_shape(
        "the model's", _CODE
    )
    input_dtype: str | Sequence[str] = _calls.input_dtype(group=_CODE)
    train: bool = option(
        "Measure the forward pass in training mode, recorded for gradients.", False, group=_CODE
    )
    backward: bool = option(
        "Measure training steps: forward and backward pass.", False, group=_CODE
    )
    loss: str | None = option(
        "Loss of a training step.  [default: sum]", None, group=_CODE, reads=("choice", *LOSSES)
    )
    optimizer: str | None = option(
        "Include an optimizer step in every run.  [default: none]", None,
        group=_CODE, reads=("choice", *OPTIMIZERS),
    )  # fmt: skip
    compiled: bool = option(
        "Also measure the model compiled by torch.compile.", False, group=_CODE, flag="--compile"
    )
    device: str = option(
        "Device that the framework runs on.", "cpu", group=_CODE, reads=("choice", *DEVICES)
    )
    trust: bool = _calls.trust(group=_CODE)


@dataclass(frozen=True)
class ProfileFrameworkArguments(FrameworkOptions, _calls.Contained):
    """The arguments of `profile_framework`."""

    target: object
    _: KW_ONLY
    batch: int | Sequence[int] | None = argument(None, rule=swept(RULES["batch"]))
    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    precision: float | None = None
    threads: int | Sequence[int] = argument(0, rule=swept(RULES["threads"]))
    seed: int = 0
    inputs: Sequence[NDArray[Any]] | Mapping[str, NDArray[Any]] | None = argument(
        None, rule=maybe(arguments.either(several(_ARRAY), arguments.mapping(_ARRAY)))
    )
    peaks: Callable[[int], Peaks] | None = None


@_calls.contained(ProfileFrameworkArguments)
def profile_framework(call: ProfileFrameworkArguments) -> Trace:
    """Profiles a model in its own framework, once for each batch size and number of threads.

    `target` is a torch.nn.Module, a chainer.Link, or the name of one: FILE.py:NAME. The code of the
    named file is run. `args`, `weights` and `trust` apply to a named model (see
    `exporters.subject.load_source`). `input_shape` has the batch first; its default is the model's
    attribute `input_shape`, without the batch. Random weights and inputs are drawn from `seed`. Or
    `inputs` are the arrays: a list by position, or a mapping by keyword of the forward pass;
    `batch`, `input_shape` and `input_dtype` then do nothing. `runs` to `optimizer` are described in
    `executors.settings`; `compiled` adds a run of the model after torch.compile. The model is
    restored afterwards. `peaks` is called with `threads` after the runs: its peaks, as those of
    `tracer.host.card`, are the roofs of the operators, whose work torch counts in a run of its own.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one; a live model is copied there, if it can be pickled. Raises the errors
    of `tracer.errors`.

    >>> import tracer
    >>> trace = tracer.profile_framework("models/lenet/torch_net.py:LeNet", runs=5, batch=2)
    >>> trace.runs[0].executor
    'torch'
    """
    from tracer.api import _framework

    return _framework.profile_framework(call)


COMMON = ("batch", "seed", "runs", "warmup", "min_time", "precision", "threads")
"""Options that a model of a framework has as well."""
PHASES = ("prefill", "decode", "past")
_OF_SUMS = ("dims", "inputs", "seed", "convention", "energy")
"""Arguments that a count of overflows has as well."""


@dataclass(frozen=True)
class ProfileArguments(_calls.Contained):
    """The arguments of `profile`."""

    model: ModelSource
    _: KW_ONLY
    batch: int | Sequence[int] | None = option(
        "Batch sizes, e.g. 1,16,64.", None,
        group=_calls.INPUT, rule=swept(RULES["batch"]), common=True,
    )  # fmt: skip
    dims: Mapping[str, int] | None = _calls.dims()
    inputs: InputPaths | Samples = part(_calls.Inputs, None, build=_calls.chosen_inputs)
    seed: int = _calls.seed()
    runs: int | None = option(
        "Inferences to measure.  [default: as many as --precision needs, in 0.5 to 1.5 s, at least "
        "10; fewer if these take more than 10 s]",
        None, group=_calls.RUNS, common=True,
    )  # fmt: skip
    precision: float | None = option(
        "Without --runs, measure until the times of the ten slowest rows are known to this share "
        "of each, or told from their neighbours: 10 s at most.  [default: 5%, 1.5 s at most]",
        None, group=_calls.RUNS, reads=("percent",), metavar="PERCENT",
    )  # fmt: skip
    warmup: int | None = option(
        "Inferences before the measured ones; without --runs, at most 3 s of them.", None,
        group=_calls.RUNS, typed=5,
    )  # fmt: skip
    min_time: float | None = option("Shortest time to measure for.", None, group=_calls.RUNS)
    threads: int | Sequence[int] = option(
        "Threads per operator, e.g. 1,2,4.  [default: all cores]", 0,
        group=_calls.RUNS, rule=swept(RULES["threads"]), common=True,
    )  # fmt: skip
    prefill: int | None = _calls.prefill()
    decode: int | None = _calls.decode()
    past: int | Sequence[int] | None = _calls.past()
    optimization: str | Sequence[str] | None = option(
        "Graph optimisation levels of onnxruntime: none, basic, extended, all.", None,
        group=_calls.ONNX, rule=swept(RULES["optimization"]), typed="all",
        reads=("optimizations",),
    )  # fmt: skip
    provider: str | None = option(
        "Execution provider of onnxruntime: cpu, cuda, tensorrt, openvino, …", None,
        group=_calls.ONNX, metavar="NAME", typed="cpu", common=True,
    )  # fmt: skip
    provider_options: Mapping[str, str] | None = _calls.provider_options()
    register: Sequence[str | Path] = _calls.register()
    replay: int = option(
        "Re-time the kernels of the N slowest rows in isolation as a cross-check.", 0,
        group=_calls.ONNX,
    )  # fmt: skip
    split: int = option(
        "Estimate the parts of the nodes in the N slowest fused kernels, from runs of each node "
        "alone.",
        0, group=_calls.ONNX,
    )  # fmt: skip
    plan: str | Path | None = option(
        "Plan that tracer tune saved: its changes and settings are used.", None, group=_calls.ONNX
    )
    convention: str = _calls.convention(group=_calls.ONNX)
    energy: str | None = _calls.energy("none", _calls.ONNX)
    accumulator: int | str | AnyAccumulator | Policy | None = None
    receivers: Sequence[Receiver] = ()
    peaks: Callable[[int], Peaks] | None = None
    confirm: bool = True
    executor: str = option(
        "What runs it: onnxruntime, openvino or interpreter.", "onnxruntime", group=_calls.ONNX,
        metavar="NAME", reads=("choice", "onnxruntime", "openvino", "interpreter"),
    )  # fmt: skip
    keep: Callable[[Trace], object] | None = None


def profile_target(
    target: str | Path,
    options: Mapping[str, Any],
    framework: FrameworkOptions,
    progress: Progress,
    keep: Callable[[Trace], object] | None,
) -> Trace:
    """Profiles an ONNX model, or the model that FILE.py:NAME names, in its framework.

    `options` are arguments of `profile`, and so is `keep`. Raises the errors of `profile` and
    `profile_framework`.
    """
    from tracer.exporters.subject import runs_in_framework

    if not runs_in_framework(str(target)):
        return profile(target, **options, progress=progress, keep=keep)
    if any(options[name] for name in PHASES):
        raise _no_phases()
    common = {name: options[name] for name in COMMON}
    peaks = options.get("peaks") if framework.device != "cpu" else None
    return profile_framework(
        str(target), **vars(framework), **common, peaks=peaks, progress=progress
    )


def _no_phases() -> UsageError:
    return UsageError(
        "phases are those of an ONNX model, without narrow accumulators",
        "Leave out --accumulator, or --prefill, --decode and --past.",
    )


@_calls.contained(ProfileArguments)
def profile(call: ProfileArguments) -> Trace:
    """Profiles `model`, once for each batch size, number of threads and optimisation level.

    `inputs` names an .npz file or a test_data_set folder. The default is the test data of a model
    folder, else random inputs with `seed`. Of many files, or `Samples` of a data set, the first
    `batch` (1) are timed. `dims` sizes open dimensions, by symbol or `INPUT:AXIS`. `runs` to
    `register` are settings of the executor (see its `settings` module); None is its
    default. `convention` says how additions are counted (see `analyzers.cost`). `energy` names a
    model of `analyzers.energy`, which fills the column `energy`, in 32-bit accumulators. `peaks` is
    called with `threads` after the runs; its peaks are the roofs of the roofline. The kernels of
    the `replay` slowest rows are also run alone, without the profiler. So are the nodes of the
    `split` slowest kernels that contain several: this fills `time_us_split`. `confirm` checks which
    nodes fused kernels contain by comparing tensors with the interpreter.

    FILE.py:NAME runs in its framework, as in `profile_framework`; the arguments of onnxruntime and
    of ONNX are then left at their defaults.

    `prefill` and `decode` profile the phases of a decoder with a cache: a prefill of `prefill`
    tokens, and one of `decode` steps of one token: the middle one, or with `past` one at each of
    these numbers of tokens in the cache. Whole generations are timed as well. Raises ModelError
    for a model without a cache, UsageError for `dims` or `inputs` beside them.

    `plan` is the file of a plan that `tracer.tune` chose: its changes are made first, and its
    settings replace `threads`, `optimization` and `provider`. Notes tell how this machine and model
    differ from those of the plan.

    With an `accumulator`, as in `interpret`, its overflow is counted as well, over all inputs, and
    is in the rows of the times. `receivers` are those of `interpret`.

    `keep` is called before every further run, with a trace of the runs so far that is marked
    incomplete: what is left of them if the model crashes the process.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`;
    `in_process` runs it in this one, without limits. Raises the errors of `tracer.errors`, and
    CrashError if the child dies.

    >>> import tracer
    >>> trace = tracer.profile("models/lenet/lenet.onnx", runs=20, threads=1)
    >>> trace.wall_us > 0
    True
    >>> trace.top(1)["node"].tolist()
    ['node_Conv_22 +1']
    """
    from tracer.exporters.subject import runs_in_framework

    if isinstance(call.model, str) and runs_in_framework(call.model):
        own = {*COMMON, "model", "progress", "limits", "in_process", "keep"}
        for each in fields(call):
            if each.name not in own and getattr(call, each.name) != each.default:
                raise UsageError(f"{each.name}: not for {call.model}", "For an .onnx file alone.")
        common = {name: getattr(call, name) for name in COMMON}
        if call.warmup is None:
            del common["warmup"]
        return profile_framework(call.model, **common, progress=call.progress, in_process=True)
    from tracer.api import _profile

    return _profile.profile(call) if call.accumulator is None else _with_sums(call)


def _with_sums(call: ProfileArguments) -> Trace:
    """Profiles the model, and counts the overflow of the accumulator in the rows of the times."""
    from tracer.analyzers.table import Source, merged
    from tracer.api import _profile

    if any(getattr(call, name) for name in PHASES):
        raise _no_phases()
    counted = interpret(
        call.model, **{name: getattr(call, name) for name in _OF_SUMS},
        accumulator=call.accumulator, receivers=call.receivers, progress=call.report,
        in_process=True,
    )  # fmt: skip
    times = _profile.profile(replace(call, accumulator=None, energy=None))
    return merged([Source("times", times), Source("sums", counted)])
