"""Mutations of texts: numbers, strings and lines of TOML and JSON."""

import re
from random import Random

from tests.fuzz.mutations import extremes, octets

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_WORD = re.compile(r"\b(?:true|false|null|[a-z_]{3,})\b")
OTHERS = ("null", "true", "[]", "{}", "[[[[]]]]", "nan", "inf", "1e999", '"x"', "0x10", "9" * 400)


def change_number(random: Random, text: str) -> str:
    value = (extremes.integer, extremes.floating)[random.random() < 0.3](random)
    return _replaced(random, _NUMBER, text, str(value))


def change_kind(random: Random, text: str) -> str:
    return _replaced(random, random.choice((_NUMBER, _STRING)), text, random.choice(OTHERS))


def change_string(random: Random, text: str) -> str:
    escaped = extremes.text(random).replace("\\", "\\\\").replace('"', '\\"')
    plain = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)
    return _replaced(random, _STRING, text, f'"{plain}"')


def change_word(random: Random, text: str) -> str:
    return _replaced(random, _WORD, text, random.choice(_WORD.findall(text) or ["x"]))


def double_line(random: Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [text]
    place = random.randrange(len(lines))
    return "".join((*lines[:place], lines[place], *lines[place:]))


def delete_line(random: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        del lines[random.randrange(len(lines))]
    return "".join(lines)


MUTATIONS = (
    change_number, change_number, change_kind, change_string, change_word, double_line, delete_line,
)  # fmt: skip


def mutated(random: Random, content: bytes, other: bytes) -> tuple[bytes, str]:
    """Returns the text after a mutation, and its name; a fifth of the mutations are of bytes."""
    if random.random() < 0.2:
        return octets.mutated(random, content, other)
    mutation = random.choice(MUTATIONS)
    text = mutation(random, content.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape"), mutation.__name__


def _replaced(random: Random, pattern: re.Pattern[str], text: str, value: str) -> str:
    """The text with one match, any of them, replaced."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = random.choice(found)
    return text[: match.start()] + value + text[match.end() :]
