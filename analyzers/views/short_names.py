"""Short forms of long names for charts: both ends of a name stay, and different names differ."""

from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import count, takewhile

_CUT = "…"
MOST_CHARACTERS = 28


def short_names(names: Sequence[str]) -> list[str]:
    """Returns `names` in at most 28 characters each, cut in the middle.

    Names that become equal show what distinguishes them, and at last a number: `conv…block… #2`.
    """
    distinct = dict.fromkeys(names)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in distinct:
        alike[cut(name, MOST_CHARACTERS)].append(name)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    for short, group in sorted(alike.items(), key=lambda item: len(item[1])):
        forms = [short] if len(group) == 1 else _apart(group)
        for name, form in zip(group, forms, strict=True):
            chosen[name] = _free(form, taken)
            taken.add(chosen[name])
    return [chosen[name] for name in names]


def cut(name: str, most: int) -> str:
    """The beginning and the end of a name, which often tells more."""
    if len(name) <= most:
        return name
    kept = most - len(_CUT)
    end = (kept + 1) // 2
    return name[: kept - end] + _CUT + name[-end:]


def _apart(group: Sequence[str]) -> list[str]:
    """The beginning, the part that only one of the names has, and the end."""
    before = _alike(group)
    after = _alike([name[before:][::-1] for name in group])
    forms = []
    for name in group:
        own = cut(name[before : len(name) - after], MOST_CHARACTERS // 2 - len(_CUT))
        room = MOST_CHARACTERS - len(own) - 2 * len(_CUT)
        end = min((room + 1) // 2, after)
        forms.append(name[: room - end] + _CUT + own + _CUT + name[len(name) - end :])
    return forms


def _alike(names: Sequence[str]) -> int:
    """The number of first characters that all names share."""
    return sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False)))


def _free(form: str, taken: Set[str]) -> str:
    """The form, numbered where another name has it."""
    if form not in taken:
        return form
    numbered = (cut(form, MOST_CHARACTERS - len(f" #{n}")) + f" #{n}" for n in count(2))
    return next(each for each in numbered if each not in taken)
