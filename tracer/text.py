"""Texts that are shown: names of models and files, made safe, and names that somebody meant.

A name in a model is anybody's: an escape sequence must not reach a terminal, a line break must not
begin a line of its own, and a name of a megabyte must not fill a page.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence

NAME = 200
"""Most characters of a name."""
BRIEF = 80
"""Most characters of a name within a sentence."""
LINE = 2_000
"""Most characters of a line that tracer composes, such as a heading or a note."""
MESSAGE = 500
"""Most characters of an error or another message."""

PREFILL, DECODE = "prefill", "decode"
"""Phases of a language model, as runs and commands name them."""
CHOSEN = "sizes chosen: "
"""Begins the note on sizes that neither model nor user set: it is shown first."""

_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs"))
"""Unicode categories of control characters, direction marks, separators and surrogates."""


def printable(text: str, most: int = NAME) -> str:
    """Returns `text` on one line of at most `most` characters, at least 60.

    Control characters and those that change the direction become escapes, a line break `⏎`. Text
    that is too long loses its middle, where its length is told instead. A second call changes
    nothing.
    """
    if len(text) <= most:
        shown = escaped(text)
        if len(shown) <= most:
            return shown
    gap = f" … ({len(text):,} characters) … "
    begin = (most - len(gap)) * 2 // 3
    end = most - len(gap) - begin
    return escaped(text[:most])[:begin] + gap + escaped(text[-most:])[-end:]


def brief(name: str) -> str:
    """Returns a name, safe to show within a sentence: some converters write names of 300."""
    return printable(name, BRIEF)


def line(text: str) -> str:
    """Returns a line that tracer composed of names, safe to show."""
    return printable(text, LINE)


def message(text: str) -> str:
    """Returns an error or another message, safe to show; its beginning and its end say most."""
    return printable(text, MESSAGE)


def without_code(text: str) -> str:
    """Returns a message of onnxruntime without the code that it begins with."""
    return _CODE.sub("", text)


def escaped(text: str) -> str:
    """Returns all of `text` without line breaks and control characters."""
    if text.isprintable():
        return text
    return "".join(
        "⏎" if char == "\n"
        else char.encode("unicode_escape").decode() if is_hidden(char) else char
        for char in text.replace("\r\n", "\n")
    )  # fmt: skip


def is_hidden(char: str) -> bool:
    """Whether a character is a control character, a direction mark, a separator or a surrogate."""
    return unicodedata.category(char) in _HIDDEN


def agree(count: float, one: str, several: str) -> str:
    """Returns the form of a verb that agrees with a count."""
    return one if count == 1 else several


def plural(count: int, noun: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


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
