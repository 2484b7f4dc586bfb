"""A block multiply-add in exact fractions, from the published rules alone."""

from fractions import Fraction
from math import inf


def exponent(value, least):
    """The exponent of |value| >= 2^least, else `least`."""
    result = least
    while abs(value) >= Fraction(2) ** (result + 1):
        result += 1
    return result


def block(left, right, start, fraction, least_operand, least_out=-126):
    """The exact sum of terms truncated to multiples of 2^(emax - F)."""
    terms = []
    for a, b in zip(left, right, strict=True):
        if a and b:
            power = exponent(a, least_operand) + exponent(b, least_operand)
            terms.append((a * b, power))
    if start:
        terms.append((start, exponent(start, least_out)))
    if not terms:
        return Fraction(0)
    unit = Fraction(2) ** (max(power for _, power in terms) - fraction)
    return sum(int(value / unit) for value, _ in terms) * unit  # int drops the fraction


def rounded(value, fraction, least, largest, nearest):
    """A sum in its format, as a float: towards 0 or to nearest, ties to even."""
    unit = Fraction(2) ** (exponent(value, least) - fraction)
    result = (round if nearest else int)(value / unit) * unit
    if abs(result) > largest:
        return inf if result > 0 else -inf
    return float(result)


def chain(left, right, start, length, fraction, least_operand, out):
    """Blocks of `length` one after the other; `out` has the arguments of `rounded`."""
    value = Fraction(start)
    for first in range(0, len(left), length):
        part = slice(first, first + length)
        total = block(left[part], right[part], value, fraction, least_operand, out[1])
        value = Fraction(rounded(total, *out))
    return float(value)


def scaled_block(left, right, start, fraction, group, least_operand=None, least_scale=-127):
    """As `block`; operands are (element, scale). Groups of products are one term each."""
    terms = [(start, exponent(start, -126))] if start else []
    for first in range(0, len(left), group):
        pairs = list(zip(left, right, strict=True))[first : first + group]
        scales = abs(pairs[0][0][1]), abs(pairs[0][1][1])
        power = sum(exponent(scale, least_scale) for scale in scales)
        total = sum(a * b for (a, _), (b, _) in pairs)
        if group == 1:
            power += sum(exponent(x, least_operand) for (x, _) in pairs[0])
        if total:
            terms.append((total * scales[0] * scales[1], power))
    if not terms:
        return Fraction(0)
    unit = Fraction(2) ** (max(power for _, power in terms) - fraction)
    return sum(int(value / unit) for value, _ in terms) * unit
