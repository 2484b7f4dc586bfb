"""Names that somebody may have meant by one that is refused."""

import difflib
from collections.abc import Iterable, Sequence

_LEAST = 0.7
"""Similarity below which a name is another word; at 0.6, short words are alike by chance."""
_BEHIND = 0.12
"""How much less similar than the best name another one may be, and still be shown."""
_MOST = 3


def suggest(name: str, known: Iterable[str]) -> str:
    """Returns `Did you mean 'profile'? `, which may begin a hint; "" if no known name is similar.

    The most similar names come first.
    """
    return ask(similar(name, known))


def similar(name: str, known: Iterable[str]) -> list[str]:
    """Returns the known names most like one. Case, and dashes before a name, make no difference."""
    word = name.lower().lstrip("-")
    matcher, scores = difflib.SequenceMatcher(b=word), dict[str, float]()
    for each in known:
        matcher.set_seq1(each.lower().lstrip("-"))
        scores[each] = matcher.ratio()
    least = max(max(scores.values(), default=0) - _BEHIND, _LEAST)
    near = sorted((each for each in scores if scores[each] >= least), key=lambda n: -scores[n])
    return near[:_MOST]


def ask(names: Sequence[str]) -> str:
    """Returns `Did you mean 'runs' or 'sessions'? `; "" for no names."""
    if not names:
        return ""
    *others, last = map(repr, names)
    return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}? "
