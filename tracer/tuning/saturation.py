"""Tells which nodes of a model in 8 bits saturate, where this processor adds products in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracer.accumulators.spec.policy_text import policy
from tracer.errors import TracerError
from tracer.executors import registry
from tracer.limits import Limits, enforced
from tracer.support.progress import Progress
from tracer.text import brief
from tracer.tuning.candidates import Candidate
from tracer.tuning.machine import Machine
from tracer.tuning.setup import Setup

_PRESET = "x86-maddubs"
"""The accumulator of kernels for AVX2 without VNNI: pairs of products in 16 bits."""
_CHANGE, _TYPES = "static_int8", ("u8s8", "s8s8")
_NAMED = 3


def notes(
    candidates: Sequence[Candidate], machine: Machine, seconds: float, progress: Progress
) -> Iterator[str]:
    """Yields a note for each model of bytes by signed bytes that this processor adds in pairs.

    Its sums are emulated on the inputs of the search, for at most `seconds`. Nothing is emulated
    for a processor that adds such products exactly.
    """
    for candidate in candidates if machine.saturates else ():
        step = candidate.steps[0]
        if step.change.name == _CHANGE and step.value in _TYPES and candidate.setup is not None:
            yield f"{step}: {_told(candidate.setup, seconds, progress)}"


def _told(setup: Setup, seconds: float, progress: Progress) -> str:
    try:
        changed = _changed(setup, seconds, progress)
    except TracerError as error:
        return (
            "this processor has no VNNI, so that pairs of products may saturate at 16 bits; "
            f"emulating them failed: {error.what}"
        )
    count, nodes = sum(changed.values()), sorted(changed, key=lambda node: -changed[node])
    if not count:
        return "no sum saturates on these inputs, as this processor adds pairs of products"
    more = len(nodes) - _NAMED
    named = ", ".join(map(brief, nodes[:_NAMED])) + (f" and {more:,} more" if more > 0 else "")
    return (
        f"{count:,} sums of {named} differ, as this processor adds pairs of products in 16 bits, "
        "which saturate"
    )


def _changed(setup: Setup, seconds: float, progress: Progress) -> dict[str, int]:
    """Returns how many sums of each node differ in the emulation, of those with any."""
    limits = Limits(seconds=seconds)
    chosen = {"policy": policy(_PRESET), "limits": limits}
    settings = registry.settings_for(registry.EMULATED, chosen)
    with enforced(limits):
        executor = registry.find(registry.EMULATED)
        run = executor.profile(setup.model, [setup.feedset], settings, progress).run
    counts = {sums.node: int(sums.tally.outputs_changed.sum()) for sums in run.sums}
    return {node: count for node, count in counts.items() if count}
