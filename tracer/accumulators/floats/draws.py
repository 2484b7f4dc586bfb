"""Random bits of stochastic rounding: a hash of seed, index and step, whatever thread asks."""

import numpy as np

from tracer.accumulators.floats.kernels.hashing import (
    BITS,
    INDEX_STEP,
    LAST_SHIFT,
    MIXERS,
    SEED_STEP,
    STEP_STEP,
)
from tracer.support.types import Array


def key(rule_seed: int, seed: int) -> int:
    """Returns 64 bits for the seed of a rounding rule and the seed of, say, a node."""
    first = int(_mixed(np.array([rule_seed * SEED_STEP % (1 << 64)], np.uint64))[0])
    second = np.array([(first + seed * SEED_STEP) % (1 << 64)], np.uint64)
    return int(_mixed(second)[0])


def of_outputs(key: int, indices: Array) -> Array:
    """Returns 64 bits, uint64, for each output index."""
    return _mixed(np.uint64(key) + indices.astype(np.uint64) * np.uint64(INDEX_STEP))


def at_step(outputs: Array, step: int) -> Array:
    """Returns numbers of `BITS` bits, float64, one for each of `outputs` at a step."""
    spread = np.uint64((step + 1) * STEP_STEP % (1 << 64))
    return (_mixed(outputs + spread) >> np.uint64(64 - BITS)).astype(np.float64)


def _mixed(words: Array) -> Array:
    for bits, factor in MIXERS:
        words = (words ^ (words >> np.uint64(bits))) * np.uint64(factor)
    return words ^ (words >> np.uint64(LAST_SHIFT))
