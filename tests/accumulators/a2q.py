"""Widths of accumulators as A2Q, A2Q+ and AXE put them, for comparison with what they publish.

A2Q: Colbert, Pappalardo, Petri-Koenig, arXiv 2308.13504 (and 2301.13376); A2Q+: Colbert,
Pappalardo, Petri-Koenig, Umuroglu, arXiv 2401.10432; AXE: arXiv 2409.17092. Their accumulators hold
[-(2^(P-1) - 1), 2^(P-1) - 1]: the lowest number of two's complement is left out. Partial sums in
any order are covered, bias and zero points are not. `bounds` is exact where these round up.
"""

from __future__ import annotations

from fractions import Fraction


def datatype_bound(terms: int, weight_bits: int, activation_bits: int, signed: bool) -> int:
    """Bits for `terms` products of any signed weights and (signed or unsigned) activations.

    The least P of a + log2(1 + 2^-a) + 1 <= P, where a = log2 K + N + M - 1 - s.
    """
    return _width(terms << (activation_bits - signed + weight_bits - 1))


def weight_bound(l1_norm: int, activation_bits: int, signed: bool) -> int:
    """Bits for weights whose magnitudes add up to `l1_norm`, an integer of at least 1.

    The same with a = log2 ||w||_1 + N - s.
    """
    return _width(l1_norm << (activation_bits - signed))


def weight_budget(bits: int, activation_bits: int, signed: bool) -> Fraction:
    """The sum of magnitudes of weights up to which `bits` are enough: (2^(P-1) - 1) 2^(s-N)."""
    return Fraction((1 << (bits - 1)) - 1, 1 << (activation_bits - signed))


def centred_weight_bound(l1_norm: int, activation_bits: int) -> int:
    """A2Q+: bits for weights that add up to 0, and unsigned activations.

    The least P of log2(||w||_1 (2^N - 1) + 2) <= P.
    """
    return (l1_norm * ((1 << activation_bits) - 1) + 1).bit_length()


def centred_weight_budget(bits: int, activation_bits: int) -> Fraction:
    """A2Q+: (2^P - 2) / (2^N - 1), for weights that add up to 0, and unsigned activations."""
    return Fraction((1 << bits) - 2, (1 << activation_bits) - 1)


def axe_bound(positive: int, negative: int, low: int, high: int) -> int:
    """AXE: bits for weights that add up to `positive`, and to -`negative`, times `low` to `high`.

    The least P with high p + low n <= 2^(P-1) - 1 and low p + high n >= -(2^(P-1) - 1), where p is
    the sum of the positive weights, n that of the negative ones, and low <= 0 <= high.
    """
    reach = high * positive - low * negative, high * negative - low * positive
    return _width(max(reach))


def axe_radius(bits: int, low: int, high: int) -> Fraction:
    """AXE: the magnitudes of weights that add up to 0 may add up to (2^P - 2) / (high - low)."""
    return Fraction((1 << bits) - 2, high - low)


def _width(reach: int) -> int:
    """The least P with `reach` <= 2^(P-1) - 1."""
    return reach.bit_length() + 1
