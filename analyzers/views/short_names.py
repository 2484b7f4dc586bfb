"""Short forms of long names: both ends of a name stay, and different names differ."""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from itertools import count, takewhile

_CUT = "…"
MOST_CHARACTERS = 28
_LEAST_APART = 14
"""Names in fewer characters have no room for what distinguishes them."""

_SEPARATORS = "/.:"
_LEAST_PREFIX = 6
_LEAST_NAMES = 3


def without_prefix(names: Sequence[str]) -> tuple[list[str], str]:
    """Returns `names` without the folders that most of them begin with, and these folders.

    `…` stands for them. Names that begin otherwise stay; '' if too few names share folders.
    """
    counts: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        ends = [place + 1 for place, char in enumerate(name[:-1]) if char in _SEPARATORS]
        counts.update(name[:end] for end in ends if end >= _LEAST_PREFIX)
    least = max(_LEAST_NAMES, len(set(names)) / 2)
    common = [prefix for prefix, times in counts.items() if times >= least]
    prefix = max(common, key=lambda each: counts[each] * (len(each) - len(_CUT)), default="")
    if not prefix:
        return list(names), ""
    return [_CUT + n[len(prefix) :] if n.startswith(prefix) else n for n in names], prefix


def short_names(names: Sequence[str], most: int = MOST_CHARACTERS) -> list[str]:
    """Returns `names` in at most `most` characters each, cut in the middle.

    Names that become equal show what distinguishes them, and at last a number: `conv…block… #2`.
    """
    distinct = dict.fromkeys(names)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in distinct:
        alike[cut(name, most)].append(name)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for short, group in sorted(alike.items(), key=lambda item: len(item[1])):
        forms = [short] if len(group) == 1 else _apart(group, most)
        for name, form in zip(group, forms, strict=True):
            chosen[name] = _free(form, taken, most)
            taken.add(chosen[name])
    return [chosen[name] for name in names]


def cut(name: str, most: int) -> str:
    """The beginning and the end of a name, which often tells more."""
    if len(name) <= most:
        return name
    kept = most - len(_CUT)
    end = (kept + 1) // 2
    return name[: kept - end] + _CUT + name[-end:]


def _apart(group: Sequence[str], most: int) -> list[str]:
    """The beginning, the part that only one of the names has, and the end."""
    if most < _LEAST_APART:
        return [cut(name, most) for name in group]
    before = _alike(group)
    after = _alike([name[before:][::-1] for name in group])
    forms = []
    for name in group:
        own = cut(name[before : len(name) - after], most // 2 - len(_CUT))
        room = most - len(own) - 2 * len(_CUT)
        end = min((room + 1) // 2, after)
        forms.append(name[: room - end] + _CUT + own + _CUT + name[len(name) - end :])
    return forms


def _alike(names: Sequence[str]) -> int:
    """The number of first characters that all names share."""
    return sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False)))


def _free(form: str, taken: Set[str], most: int) -> str:
    """The form, numbered where another name has it."""
    if form not in taken:
        return form
    numbered = (cut(form, most - len(f" #{n}")) + f" #{n}" for n in count(2))
    return next(each for each in numbered if each not in taken)
