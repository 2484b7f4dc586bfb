"""What is known of a kernel's arithmetic: a rule that was verified, or the reason why none is."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np

from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.support.types import Array

Facts = Mapping[str, Any]
LEAST_RESULTS = 10_000
"""Results with equal bits that a rule takes before it is claimed."""
_MOST_RUNS = 200
_NEARLY = float(np.nextafter(1.0, 0))


class Rule(msgspec.Struct, frozen=True):
    """How a kernel computes: `text` says it in a sentence, `facts` are what its replay needs.

    `facts` are plain data (JSON), so that rules can be stored and sent to another machine.
    """

    text: str
    facts: dict[str, Any] = {}


class NotKnown(Exception):  # noqa: N818 - no error: a result of looking
    """No rule fits what a kernel computes; the message is the reason."""


class Replay(Protocol):
    """How the kernels of some operators are revealed and replayed."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields rules that may be the kernel's, the likeliest first: `reveal` verifies each.

        Probes of the kernel narrow them down. Raises NotKnown with the reason if there can be none.
        """
        ...

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the outputs that the kernel computes from inputs by name, by its rule."""
        ...


def reveal(replay: Replay, kernel: Kernel) -> Rule:
    """Returns the first candidate that equals the kernel in all bits of random results.

    Raises NotKnown if none does: the message is that of the candidate with most equal results.
    """
    reason, most = "no rule fits", -1.0
    for rule in replay.candidates(kernel):
        share = share_of_equal(replay, kernel, rule)
        if share == 1:
            return rule
        if share > most:
            shown = f"{share:.1%}" if share < 0.999 else "nearly all"
            reason, most = f"{rule.text}: {shown} of the results are equal", share
    raise NotKnown(reason)


def share_of_equal(replay: Replay, kernel: Kernel, rule: Rule) -> float:
    """Returns the share of equal results on random inputs, of 10,000 if all are equal so far.

    Replay and kernel run in turns; the first run that differs is the last.
    """
    random, seen = np.random.default_rng(0), 0
    for turn in range(_MOST_RUNS):
        inputs = kernel.draw(random, turn)
        pairs = zip(kernel.run(inputs), replay.replay(kernel, rule.facts, inputs), strict=True)
        equal = [are_equal(output, replayed) for output, replayed in pairs]
        results = np.concatenate([each.ravel() for each in equal])
        if not results.all():
            return min(float(np.mean(results)), _NEARLY)
        seen += results.size
        if seen >= LEAST_RESULTS or kernel.is_fixed or not results.size:
            break
    return 1.0


def are_equal(first: Array, second: Array) -> Array:
    """Returns which elements have equal bits, as an array; one NaN is like another."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return np.zeros(1, bool)
    if first.dtype.kind != "f":
        return np.atleast_1d(first == second)
    bits = f"u{first.dtype.itemsize}"
    equal = np.ascontiguousarray(first).view(bits) == np.ascontiguousarray(second).view(bits)
    return np.atleast_1d(equal | (np.isnan(first) & np.isnan(second)))
