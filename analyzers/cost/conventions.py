"""How many additions a MAC is: a named choice, each one a function of the count.

The multiplications are the same in all of them (one per MAC), and so are the flops.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers.cost.count import Count
from tracer.errors import UsageError

Convention = Callable[[Count], int]
"""The additions of a count, those of its MACs included."""


def plain(count: Count) -> int:
    """Every sum is accumulated from zero: one addition per MAC."""
    return count.macs + count.adds


def channelwise(count: Count) -> int:
    """The window of each input channel is summed from zero, then the channels' sums from zero.

    A convolution over C channels and K weights thus has K + C additions per output; everything
    else is counted as in `plain`.
    """
    return plain(count) + count.channel_sums


CONVENTIONS: dict[str, Convention] = {"plain": plain, "channelwise": channelwise}


def find(name: str) -> Convention:
    """The convention called `name`. Raises UsageError for an unknown one."""
    if name not in CONVENTIONS:
        allowed = ", ".join(CONVENTIONS)
        raise UsageError(f"no counting convention is called '{name}'", f"Choose one of: {allowed}.")
    return CONVENTIONS[name]
