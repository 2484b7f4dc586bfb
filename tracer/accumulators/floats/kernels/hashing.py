"""Constants of the hash of stochastic rounding, here because compiled code depends on them."""

BITS = 24
"""Bits of a draw: a float64 holds at least as many below those that a format keeps."""
INDEX_STEP, STEP_STEP, SEED_STEP = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0xD1342543DE82EF95
"""Odd numbers that spread indices, steps and seeds over 64 bits."""
MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and factors of the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
LAST_SHIFT = 31
