"""A block multiply-add, as `bfma(16,25)` or `bfma(32,13,e8m13)`."""

from collections.abc import Sequence

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.block_fma import NAME, BlockFma, block_fma, is_block_fma

EXAMPLE = "bfma(16,25,fp32)"
TAKES = frozenset[str]()


def names() -> Sequence[str]:
    """Returns the name of all of them."""
    return (NAME,)


def parse(text: str, like: Accumulator) -> BlockFma | None:
    """Returns the block multiply-add that the text spells."""
    return block_fma(text) if is_block_fma(text) else None
