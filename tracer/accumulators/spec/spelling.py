"""Parts of a spelling; what is in parentheses stays together."""

from collections.abc import Iterator


def parts(text: str, separator: str) -> list[str]:
    """Splits at each `separator` outside parentheses; everywhere if parentheses do not match."""
    cuts = list(_outside(text, separator))
    return [text[a + 1 : b] for a, b in zip([-1, *cuts], [*cuts, len(text)], strict=True)]


def halves(text: str, separator: str) -> tuple[str, str]:
    """Returns what is before and after the last `separator` outside parentheses.

    The first half is empty if there is none.
    """
    *before, last = parts(text, separator)
    return separator.join(before), last


def _outside(text: str, separator: str) -> Iterator[int]:
    """Yields the positions of `separator` outside parentheses, if parentheses match."""
    depth, matches = 0, _matches(text)
    for position, letter in enumerate(text):
        depth += matches * ((letter == "(") - (letter == ")"))
        if letter == separator and not depth:
            yield position


def _matches(text: str) -> bool:
    """Whether each parenthesis is closed after it is opened."""
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return not depth
