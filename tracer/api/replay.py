"""Fingerprints the arithmetic of a runtime, and replays that of another, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from tracer.api import _calls
from tracer.support.arguments import FLAG, RULES, TEXT, amount, argument, maybe, option, part

if TYPE_CHECKING:
    from tracer.exporters.subject import ModelSource
    from tracer.inputs.request import InputPaths, Samples
    from tracer.records.bits import Fingerprint, Replayed

_GROUP = "Arithmetic of a runtime"


@dataclass(frozen=True, kw_only=True)
class RuntimeArguments:
    """What sets the runtime whose arithmetic is replayed."""

    runtime: Literal["onnxruntime"] | None = option(
        "Compute each kernel that onnxruntime runs by the rule of its arithmetic, and compare the "
        "bits: --as onnxruntime.  [default: numpy's arithmetic]",
        None, group=_GROUP, rule=maybe(TEXT), flag="--as", reads=("choice", "onnxruntime"),
        metavar="RUNTIME", common=True,
    )  # fmt: skip
    optimization: str | None = option(
        "Graph optimisation level of onnxruntime: interpret the graph that it makes of the model.  "
        "[default: all with --as, else the graph of the file]",
        None, group=_GROUP, rule=maybe(RULES["optimization"]), reads=("optimization",),
    )  # fmt: skip
    anew: bool = option("Reveal rules anew, and store them.", False, group=_GROUP, rule=FLAG)


@dataclass(frozen=True)
class ReplayArguments(RuntimeArguments, _calls.Contained):
    """The arguments of `replay`."""

    model: ModelSource
    _: KW_ONLY
    optimization: str = _calls.optimization("all", group=_GROUP)
    batch: int | None = _calls.batch("the model's own, 64 with --data")
    dims: Mapping[str, int] | None = _calls.dims()
    inputs: InputPaths | Samples = part(_calls.Inputs, None, build=_calls.chosen_inputs)
    seed: int = _calls.seed()
    threads: int = _calls.threads()
    node: str | None = argument(None, rule=maybe(TEXT))


@_calls.contained(ReplayArguments)
def replay(call: ReplayArguments) -> Replayed:
    """Replays every kernel that onnxruntime runs for `model`, and compares the bits.

    Kernels are those of the graph at the level `optimization`. Probes reveal how each one
    computes: the order of additions, FMA or multiply and add, polynomials of functions. A rule
    is claimed after 10,000 random results had equal bits, and is stored for this processor, these
    `threads` and this onnxruntime. Each kernel is then fed the values that onnxruntime computed.
    A kernel without a rule is computed by the interpreter, and `reason` says why none is known.

    Then the whole graph is computed by rules alone, and the SHA-256 of each output is compared
    with that of a session on the model itself, over all `inputs`.

    With a `node`, only the kernels that stand for this node of the model are revealed and compared.
    Raises UsageError where no kernel does.

    The model runs in a child process, within `limits`, or with `in_process` in this one. Raises
    the other errors of `tracer.errors`.

    >>> import tracer
    >>> replayed = tracer.replay("models/lenet/lenet.int8.onnx", threads=1)
    >>> replayed.equal == len(replayed.kernels)
    True
    """
    from tracer.api import _replay

    return _replay.replay(call)


@dataclass(frozen=True)
class FingerprintArguments(_calls.Contained):
    """The arguments of `fingerprint`."""

    models: Sequence[ModelSource] = ()
    _: KW_ONLY
    batch: int | None = _calls.batch("1")
    dims: Mapping[str, int] | None = _calls.dims()
    seed: int = _calls.seed()
    threads: int = _calls.threads(common=True)
    optimization: str = _calls.optimization("all")
    max_probe_seconds: float = option(
        "Seconds for probes of kernels; those that are left then are not known.", 45.0,
        group=_calls.RUNS, rule=amount("seconds"),
    )  # fmt: skip
    note: Callable[[str], None] | None = None


@_calls.contained(FingerprintArguments)
def fingerprint(call: FingerprintArguments) -> Fingerprint:
    """Returns how this machine computes `models` [default: the four that come with tracer].

    It has the graph that onnxruntime runs for each model, the rules of its kernels, and the SHA-256
    of the outputs on random inputs from `seed`. Saved as .json, it is replayed on another machine
    by `compare_bits(…, machine="cpu.json")`, which needs the same model. Weights are not in it.

    Rules are revealed by probes, in at most `max_probe_seconds` for all models. The models run in a
    child process, within `limits`, or with `in_process` in this one. Raises the errors of
    `tracer.errors`.

    >>> import tracer
    >>> machine = tracer.fingerprint(["models/lenet/lenet.onnx"], threads=1)
    >>> len(machine.models)
    1
    """
    from tracer.api import _replay

    return _replay.fingerprint(call)
