"""Compare models and recordings: alternate runs of the sides that are run now, then compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.errors import UsageError
from tracer.executors.settings import DEVICES
from tracer.exporters import frameworks
from tracer.support.arguments import (
    FLAG,
    PATH,
    RULES,
    argument,
    check_fields,
    either,
    mapping,
    maybe,
    option,
    part,
    several,
)

if TYPE_CHECKING:
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.sweep import Sweeps
    from tracer.exporters.subject import ModelSource
    from tracer.records.bits import BitComparison
    from tracer.records.trace import Trace
    from tracer.support.tolerance import Tolerance

_CODE, _ACCURACY, _COMPARISON = "Framework (FILE.py:NAME)", "Accuracy", "Comparison"
_BITS = "Bits"


def _weights(texts: Sequence[str]) -> Path | dict[str, Path] | None:
    """Returns a file for all frameworks, or a file for each that `torch=FILE` names."""
    named: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in frameworks():
            if len(texts) == 1:
                return Path(text)
            forms = " ".join(f"--weights {framework}=FILE" for framework in frameworks())
            raise UsageError(f"--weights {text} names no framework", f"Give {forms}.")
        if name in named:
            raise UsageError(f"--weights names two files for {name}", "Give one.")
        named[name] = Path(path)
    return named or None


@_calls.with_former_words
@dataclass(frozen=True)
class SideSettings:
    """How sides that are run now are run; the names are those of `tracer.profile`.

    `weights` is a file for all models of frameworks, or a file for each framework by name.
    `provider_options` are those of the sides on another provider of onnxruntime than the CPU.
    `register` are libraries of custom operators for onnxruntime. `input_shape` also sets the open
    dimensions of ONNX models. Layers take turns in `sessions` of each side. So do whole runs of
    several sides, in more sessions until the interval of their ratio is no wider than `precision`,
    a share, either way.
    """

    batch: int | None = option(
        "Batch size. Several sizes, e.g. 1,16,64, are compared with each other.", None,
        group=_calls.INPUT, reads=several(RULES["batch"]).reads, common=True,
    )  # fmt: skip
    dims: Mapping[str, int] = _calls.dims(factory=dict)
    inputs: Path | None = _calls.inputs(group=_calls.INPUT)
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = _calls.input_shape(
        "those of the first ONNX model, else the model's", _calls.INPUT
    )
    input_dtype: str | Sequence[str] = _calls.input_dtype(group=_calls.INPUT)
    seed: int = _calls.seed()
    precision: float = option(
        "Compare whole runs until the ratio is known to this, either way.", 0.01,
        group=_calls.RUNS, reads=("percent",), typed="1%",
    )  # fmt: skip
    sessions: int = option(
        "Sessions of every side for layers, and the least number of them for whole runs: there are "
        "more until the precision is reached.",
        24, group=_calls.RUNS,
    )  # fmt: skip
    threads: int = option(
        "Threads per operator. At several numbers, e.g. 1,2, each side is compared at each of "
        "them.  [default: all cores]",
        0, group=_calls.RUNS, reads=several(RULES["threads"]).reads, typed=None,
        common=True,
    )  # fmt: skip
    optimization: str = _calls.optimization("all")
    provider_options: Mapping[str, str] = _calls.provider_options(factory=dict)
    register: Sequence[str | Path] = _calls.register()
    args: Mapping[str, Any] = _calls.args(group=_CODE, factory=dict)
    weights: Path | Mapping[str, Path] | None = option(
        "File of weights: safetensors or a state dict (torch), .npz (Chainer). Repeatable for "
        "models of both frameworks.",
        None, group=_CODE, rule=maybe(either(PATH, mapping(PATH))), reads=(), multiple=True,
        metavar="[torch=|chainer=]FILE", convert=_weights,
    )  # fmt: skip
    train: bool = option("Compare forward passes in training mode.", False, group=_CODE)
    backward: bool = option(
        "Compare training steps: forward and backward pass.", False, group=_CODE
    )
    device: str = option(
        "Device that the framework runs on.", "cpu", group=_CODE, reads=("choice", *DEVICES)
    )

    def __post_init__(self) -> None:
        """Raises UsageError for a value that is not allowed."""
        check_fields(self)

    def shapes(self, batch: int | None) -> list[tuple[int, ...]] | None:
        """Returns the shapes of `input_shape`, at another batch if there is one."""
        if self.input_shape is None:
            return None
        from tracer.exporters.records import input_specs

        specs = input_specs(self.input_shape, "float32")
        return [(spec if batch is None else spec.with_batch(batch)).shape for spec in specs]

    def weights_of(self, framework: str) -> Path | None:
        """Returns the file of weights for models of this framework."""
        if isinstance(self.weights, Mapping):
            return self.weights.get(framework)
        return self.weights


_DEFAULT = SideSettings()


@dataclass(frozen=True)
class _Values:
    """Whether values are compared, and how close they are to be."""

    numbers: bool = option(
        "Compare the values that the sides compute; exit 1 if they differ.", True,
        group=_COMPARISON, rule=FLAG, flag="--numbers/--no-numbers", common=True,
    )  # fmt: skip


@dataclass(frozen=True)
class CompareArguments(_calls.Contained):
    """The arguments of `compare`."""

    sides: Sequence[ModelSource | Trace]
    _: KW_ONLY
    settings: SideSettings = part(SideSettings, _DEFAULT, build=dict)
    test: _calls.Data | None = _calls.data(None, group=_ACCURACY)
    data_dir: str | Path = _calls.data_dir(group=_ACCURACY)
    test_limit: int | None = _calls.limit(group=_ACCURACY, flag="--limit")
    metrics: Sequence[str] | None = option(
        "Accuracy metric: top1, top5, mse, perplexity; agreement, noise, channel-noise (with A); "
        "or FILE.py:NAME. Repeatable.  [default: chosen by the data, and agreement]",
        None, group=_ACCURACY, flag="--metric", multiple=True, metavar="NAME", reads=(),
        convert=_calls.or_none,
    )  # fmt: skip
    by: str = option(
        "What a row is; model compares totals only.", "layer",
        group=_COMPARISON, reads=("choice", "layer", "module", "op", "model"), common=True,
    )  # fmt: skip
    depth: int | None = _calls.depth(group=_COMPARISON)
    tolerance: Tolerance | None = part(_Values, None, build=lambda numbers: numbers)
    fail_above: float | None = option(
        "Exit 1 if a side is significantly slower than A by more than this, e.g. 5%.", None,
        group=_COMPARISON, reads=("percent",), common=True,
    )  # fmt: skip
    fail_unless_within: float | None = option(
        "Exit 1 unless every side is shown to be as fast as A, within this, e.g. 2%.", None,
        group=_COMPARISON, reads=("percent",), common=True,
    )  # fmt: skip
    threads: Sequence[int] | None = argument(None, rule=maybe(several(RULES["threads"])))
    precision: float | None = None


@_calls.contained(CompareArguments)
def compare(call: CompareArguments) -> Comparison:
    """Compares each of `sides` with the first one, in time and work.

    A side is a Trace, an onnx.ModelProto or Model, or named as on the command line (see
    `tracer.api.compare.naming`). Models are run now, alternating. With a `tolerance` their values
    are compared as well, on the inputs of the first ONNX model. With `threads`, each side is
    compared at each of these numbers of threads, instead of that of the settings. So does
    `precision` replace that of the settings.

    With `test`, the ONNX models are also scored on the first `test_limit` samples of this data set,
    by `metrics` (see `tracer.metrics`) [default: one that fits the labels, and agreement with the
    first side]. Files of named sets are in `data_dir`.

    The comparison has `verdicts` where shares of the time are given: a side fails if it is shown
    to be slower by more than `fail_above`, and if it is not shown to be as fast, within
    `fail_unless_within` either way. `passed` sums them up.

    Sides run in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`; InputError if the models have
    too little in common.

    >>> import tracer
    >>> sides = ["models/lenet/lenet.onnx", "models/lenet/lenet.int8.onnx"]
    >>> few = tracer.SideSettings(sessions=4, precision=0.2)
    >>> both = tracer.compare(sides, by="model", settings=few)
    >>> both.totals["side"].tolist()
    ['lenet.onnx', 'lenet.int8.onnx']
    """
    from tracer.api.compare import running

    if call.precision is not None:
        call = replace(call, settings=replace(call.settings, precision=call.precision))
    if call.test is None and (call.test_limit or call.metrics):
        raise UsageError("a limit or a metric without data", "Name a data set: --data text:FILE.")
    if len(call.sides) * max(len(set(call.threads or ())), 1) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    return running.compare(call)


@dataclass(frozen=True)
class SweepArguments(_calls.Contained):
    """The arguments of `sweep`."""

    sides: Sequence[ModelSource | Trace]
    batches: Sequence[int]
    _: KW_ONLY
    settings: SideSettings = _DEFAULT


@_calls.contained(SweepArguments)
def sweep(call: SweepArguments) -> Sweeps:
    """Compares batch sizes of each of `sides`; a saved trace must have a run of each.

    Runs alternate between batch sizes and models, in a child process, within `seconds` and
    `process_bytes` of `limits`, or with `in_process` in this one. Raises UsageError for a side
    without these sizes, and the other errors of `tracer.errors`.

    >>> import tracer
    >>> few = tracer.SideSettings(sessions=4, precision=0.2, threads=1)
    >>> tracer.sweep(["models/lenet/lenet.onnx"], [1, 4], settings=few)
    Sweeps(lenet.onnx at batch 1, 4)
    """
    from tracer.api.compare import running

    return running.sweep(call)


@dataclass(frozen=True)
class BitOptions:
    """What `tracer compare` takes for a comparison of bits."""

    bits: bool = option(
        "Compare bits instead of times: name the first node whose bits differ, and the cause.",
        False, group=_BITS, rule=FLAG, common=True,
    )  # fmt: skip
    machine: Path | None = option(
        "Compare with the machine of this file, which tracer fingerprint wrote there.", None,
        group=_BITS, common=True, metavar="FILE", reads=("path",),
    )  # fmt: skip
    fail_unless_equal: bool = option("Exit 1 if bits differ.", False, group=_BITS, rule=FLAG)


@dataclass(frozen=True)
class BitArguments(_calls.Contained):
    """The arguments of `compare_bits`."""

    sides: Sequence[ModelSource]
    _: KW_ONLY
    settings: SideSettings = _DEFAULT
    machine: str | Path | None = argument(None)
    threads: Sequence[int] | None = argument(None, rule=maybe(several(RULES["threads"])))
    batches: Sequence[int] | None = argument(None, rule=maybe(several(RULES["batch"])))
    note: Callable[[str], None] | None = None


@_calls.contained(BitArguments)
def compare_bits(call: BitArguments) -> BitComparison:
    """Compares the bits of each of `sides` with the first one: ONNX models in onnxruntime.

    For each, the first node in the graph's order whose bits differ is named, with the cause. A
    cause is proven: the replay of the first side, switched in this fact alone and fed the same
    inputs, has the bits of the other one. With `threads` or `batches`, each side is compared at
    each of these; a batch of 1 has the first sample of a batch of 8.

    With `machine`, a file of `fingerprint`, each side is compared with that machine, which is
    replayed here, at the threads, level and batch of the file.

    Sides run in a child process, within `limits`, or with `in_process` in this one. Raises
    InputError for a file that is no fingerprint or has no such model, and the other errors of
    `tracer.errors`.

    >>> import tracer
    >>> sides = ["models/lenet/lenet.int8.onnx"] * 2
    >>> tracer.compare_bits(sides).is_equal
    True
    """
    from tracer.api.compare import bits

    return bits.compare(call)
