"""Accumulators, orders and policies: what they are, and how they are spelled.

This module splits spellings; what is in parentheses stays together.
"""

from itertools import accumulate, pairwise


def parts(text: str, separator: str) -> list[str]:
    """Splits at each `separator` outside parentheses; everywhere if parentheses do not match."""
    depths = list(accumulate((letter == "(") - (letter == ")") for letter in text))
    matches = min(depths, default=0) >= 0 and text.count("(") == text.count(")")
    cuts = (
        place
        for place, letter in enumerate(text)
        if letter == separator and not (matches and depths[place])
    )
    return [text[a + 1 : b] for a, b in pairwise([-1, *cuts, len(text)])]


def halves(text: str, separator: str) -> tuple[str, str]:
    """Returns what is before and after the last `separator` outside parentheses.

    The first half is empty if there is none.
    """
    *before, last = parts(text, separator)
    return separator.join(before), last
