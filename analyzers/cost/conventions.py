"""Conventions for the additions of a MAC. Multiplications (one per MAC) and flops do not depend
on the convention.
"""

from collections.abc import Callable

from tracer.analyzers.cost.count import Count
from tracer.errors import UsageError

Convention = Callable[[Count], int]
"""Returns the additions of a count, including the additions of its MACs."""


def plain(count: Count) -> int:
    """Counts one addition per MAC: every sum is accumulated from zero."""
    return count.macs + count.adds


def channelwise(count: Count) -> int:
    """Sums the window of each input channel from zero, then the channel sums from zero.

    A convolution over C channels and K weights has K + C additions per output. Other operators
    count as in `plain`.
    """
    return plain(count) + count.channel_sums


CONVENTIONS: dict[str, Convention] = {"plain": plain, "channelwise": channelwise}


def find(name: str) -> Convention:
    """Returns the convention called `name`. Raises UsageError for an unknown one."""
    if name not in CONVENTIONS:
        allowed = ", ".join(CONVENTIONS)
        raise UsageError(f"no counting convention is called '{name}'", f"Choose one of: {allowed}.")
    return CONVENTIONS[name]
