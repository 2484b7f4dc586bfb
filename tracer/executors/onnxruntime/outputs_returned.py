"""Measures what it takes to hand the outputs of a run to its caller.

onnxruntime may copy outputs, and their type and device decide whether it does. Where inputs and
outputs are bound to a session, outputs stay with onnxruntime. What such a run saves, beyond what it
saves in an empty run, is the cost of returning the outputs: part of the wall, and of no node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.onnxruntime.empty_run import EmptyRun
from tracer.executors.onnxruntime.plain_session import PlainSession
from tracer.inputs.feedset import Feeds
from tracer.support.timing import elapsed_us

_LEAST_BYTES = 1 << 16
"""Smaller outputs are returned in a few µs, which an empty run takes as well."""

_PAIRS = 5
"""Pairs of runs in a turn."""


@dataclass
class Comparison:
    """Pairs of runs with and without the return of outputs, of the model and of an empty model."""

    model: tuple[Callable[[], object], Callable[[], object]]
    empty: tuple[Callable[[], object], Callable[[], object]]
    savings_us: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        """Times some pairs."""
        for _ in range(_PAIRS):
            whole, unreturned, empty, bare = map(elapsed_us, (*self.model, *self.empty))
            self.savings_us.append(whole - unreturned - (empty - bare))

    def us(self) -> float:
        """Returns the median time of returning the outputs, µs; NaN before the first turn."""
        return max(0.0, float(np.median(self.savings_us))) if self.savings_us else float("nan")


def comparison(
    factory: sessions.Factory,
    feeds: Feeds,
    results: Sequence[Any],
    plain: PlainSession,
    empty: EmptyRun | None,
) -> Comparison | None:
    """Returns a comparison for a model whose outputs, `results`, may take long to return.

    None for small outputs, and where runs without their return cannot be made.
    """
    size = sum(value.nbytes for value in results if isinstance(value, np.ndarray))
    if size < _LEAST_BYTES or empty is None or plain.gives_way or factory.settings.session.bound:
        return None
    if not _are_as_declared(results, plain.session):
        return None
    unreturned = feeding.unreturned(factory.model, plain.session, feeds)
    bare = feeding.unreturned(empty.model, empty.session, feeds)
    if unreturned is None or bare is None:
        return None
    return Comparison((plain.run, unreturned), (empty, bare))


def _are_as_declared(results: Sequence[Any], session: Any) -> bool:
    """Returns whether outputs have the sizes that the model declares.

    Bound outputs of other sizes are an error; of those that are returned onnxruntime only warns.
    """
    for value, output in zip(results, session.get_outputs(), strict=True):
        shape, declared = np.shape(value), output.shape or np.shape(value)
        sizes = zip(shape, declared, strict=False)
        if len(shape) != len(declared) or any(d != n for n, d in sizes if isinstance(d, int)):
            return False
    return True
