"""`tracer.fingerprint`: what this machine's onnxruntime computes, to be replayed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support.arguments import amount, option

if TYPE_CHECKING:
    from tracer.exporters.subject import ModelSource
    from tracer.records.bits import Fingerprint


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
