"""The facts in which two rules differ, each of which can be switched alone."""

import itertools
from collections.abc import Iterator, Mapping, Set
from typing import Any

from tracer.arithmetic.rule import Facts
from tracer.arithmetic.trees import ADD, BEGIN, SCALE, tree_of_program

ORDER = "order"
_SUMS = frozenset({"program", "rows", "columns", "cells", "sums"})
"""Facts that tell together in which order terms are added, and where in the output."""
_FLAGS = {"fused": "FMA", "from_zero": "what a sum begins with"}
"""Facts of each order, which a kernel has all in one way."""
_LAYOUT = frozenset({"block"})
"""Facts that tell where values lie in memory; they change no sum."""
_PAIRS = frozenset({"channels", "positions"})
"""Ways of an integer convolution in which pairs of products saturate."""
_CAUSES = {
    "lanes": "number of lanes", "way": "order of additions", "pairs": "saturation of pairs",
    "rest": "what the C library computes", "rounded": "activations rounded to 8 bits",
}  # fmt: skip
"""By the name of a fact; others have their name in the cause."""


def differences(mine: Facts, theirs: Facts) -> dict[str, str]:
    """Returns the names of what differs, each with the cause in words."""
    found: dict[str, str] = {}
    own, other = _parts(mine), _parts(theirs)
    for name in dict.fromkeys((*own, *other)):
        here, there = own.get(name), other.get(name)
        if here == there or name in _LAYOUT:
            continue
        if isinstance(here, Mapping) and isinstance(there, Mapping) and name != ORDER:
            nested = differences(here, there)
            found |= {f"{name}.{inner}": cause for inner, cause in nested.items()}
        elif name == ORDER:
            found[name] = order_cause(mine, theirs)
        else:
            plain = _FLAGS.get(name) or _CAUSES.get(name, f"another {name.replace('_', ' ')}")
            are_pairs = name == "way" and not _PAIRS.isdisjoint((here, there))
            found[name] = "saturation of pairs" if are_pairs else plain
    return found


def switch(mine: Facts, theirs: Facts, names: Set[str]) -> dict[str, Any]:
    """Returns the facts `mine` with those of `names` as in `theirs`."""
    flags = {}
    for flag in _FLAGS:
        values = _values(theirs if flag in names else mine, flag)
        if len(values) == 1:
            flags[flag] = values.pop()
    facts = {key: value for key, value in mine.items() if ORDER not in names or key not in _SUMS}
    if ORDER in names:
        facts |= {key: value for key, value in theirs.items() if key in _SUMS}
        if "rows" in mine and "rows" in theirs:
            # those of the first rows: another batch may have more, or fewer
            rows, cells = mine["rows"][-1], theirs["cells"]
            ends = [end for end in theirs["rows"] if end < rows]
            facts |= {"rows": [*ends, rows], "cells": [*cells, cells[-1]][: len(ends) + 1]}
    for key in {name.partition(".")[0] for name in names} - {ORDER, *_FLAGS}:
        inner = {name.partition(".")[2] for name in names if name.startswith(f"{key}.")}
        if inner:
            facts[key] = switch(mine[key], theirs[key], inner)
        elif key in theirs:
            facts[key] = theirs[key]
        else:
            facts.pop(key, None)
    return {key: _with(value, flags) if key in _SUMS else flags.get(key, value)
            for key, value in facts.items()}  # fmt: skip


def adapt(mine: Facts, theirs: Facts) -> dict[str, Any]:
    """Returns the facts `mine` for a kernel that fuses what `theirs` does.

    What the kernel computes besides is as in `theirs`: further terms are added last, and sums with
    a factor to the first of these.
    """
    facts = {k: v if k in _LAYOUT else mine.get(k, v) for k, v in theirs.items()}
    if ORDER not in _parts(mine) or ORDER not in _parts(theirs):
        return facts
    own, other = (next(_sums(each)) for each in (mine, theirs))
    terms = sorted({s // 4 for s in other["program"]} - {s // 4 for s in own["program"]})
    is_scaled = any(step % 4 == SCALE for step in other["program"])
    besides = {key: value for key, value in other.items() if key not in own}

    def fuse(value: dict[str, Any]) -> dict[str, Any]:
        if "program" not in value:
            return {**value, "sums": list(map(fuse, value["sums"]))}
        program = value["program"]
        if is_scaled and terms:
            first, *others = terms
            program = [4 * first + BEGIN, *program, SCALE]
        else:
            others = terms
        return {**besides, **value, "program": [*program, *(4 * term + ADD for term in others)]}

    return fuse(facts)


def order_cause(mine: Facts, theirs: Facts) -> str:
    """Returns in what two orders differ: the place of the bias, lanes, blocks, or all."""
    own, other = ([each["program"] for each in _sums(facts)] for facts in (mine, theirs))
    if len(own) != len(other) or not own:
        return "order of additions"
    trees = [(tree_of_program(a), tree_of_program(b)) for a, b in zip(own, other, strict=True)]
    last = [max(_terms(a)) for a, _ in trees]
    bare = [(_without(a, n), _without(b, n)) for (a, b), n in zip(trees, last, strict=True)]
    if all(a == b for a, b in bare):
        return "place of the bias"
    if all(_is_in_lanes(a, b) or _is_in_lanes(b, a) for a, b in bare):
        return "number of lanes"
    if all(_terms(a) == _terms(b) or _is_divided(a, b) or _is_divided(b, a) for a, b in bare):
        return "block size"
    return "order of additions"


def _parts(facts: Facts) -> dict[str, Any]:
    """Returns what can be switched alone by name; the flags belong to the order if they vary."""
    flags = {flag: values for flag in _FLAGS if (values := _values(facts, flag))}
    apart = {flag for flag, values in flags.items() if len(values) == 1}
    parts: dict[str, Any] = {flag: next(iter(flags[flag])) for flag in apart}
    order = {key: _bare(facts[key], apart) for key in facts if key in _SUMS}
    if order:
        parts[ORDER] = order
    return parts | {k: v for k, v in facts.items() if k not in _SUMS and k not in _FLAGS}


def _values(facts: Any, flag: str) -> set[Any]:
    """Returns the values of a flag in all orders."""
    if isinstance(facts, Mapping):
        own = {facts[flag]} if flag in facts else set()
        return own.union(*(_values(facts[key], flag) for key in facts if key in _SUMS))
    if isinstance(facts, list):
        return set().union(*(_values(each, flag) for each in facts if isinstance(each, Mapping)))
    return set()


def _bare(value: Any, flags: Set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _bare(each, flags) for key, each in value.items() if key not in flags}
    return [_bare(each, flags) for each in value] if isinstance(value, list | tuple) else value


def _with(value: Any, flags: Facts) -> Any:
    if isinstance(value, Mapping):
        return {key: flags.get(key, _with(each, flags)) for key, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [_with(each, flags) for each in value]
    return value


def _sums(facts: Facts) -> Iterator[Facts]:
    """Yields the facts of each sum: the program, and how terms are added."""
    if "program" in facts:
        yield facts
    for each in facts.get("sums", ()):
        yield from _sums(each)


def _terms(tree: list[Any]) -> list[int]:
    return [term for each in tree for term in (_terms(each) if isinstance(each, list) else [each])]


def _is_divided(tree: list[Any], other: list[Any]) -> bool:
    """Returns whether each register of `other` has a part of one of `tree`, in the same order."""
    return all(
        len({number for number, _ in found}) == 1 and found == sorted(found)
        for found in _places(tree, other)
    )


def _is_in_lanes(tree: list[Any], other: list[Any]) -> bool:
    """Returns whether the registers of `other` take every so many terms of one of `tree`."""
    steps = {
        place - before
        for found in _places(tree, other)
        for (_, before), (_, place) in itertools.pairwise(found)
    }
    return _is_divided(tree, other) and len(steps) == 1 and steps.pop() > 1


def _places(tree: list[Any], other: list[Any]) -> Iterator[list[tuple[int, int]]]:
    """Yields where `tree` has the terms of each register of `other`: register, then place in it."""
    places: dict[int, tuple[int, int]] = {}
    for number, register in enumerate(_registers(tree)):
        places |= {term: (number, place) for place, term in enumerate(register)}
    for register in _registers(other):
        yield [places.get(term, (-1, 0)) for term in register]


def _registers(tree: list[Any]) -> Iterator[list[int]]:
    """Yields the terms of each register, without those that are joined to it."""
    yield [each for each in tree if not isinstance(each, list)]
    for each in tree:
        if isinstance(each, list):
            yield from _registers(each)


def _without(tree: list[Any], term: int) -> list[Any]:
    """Returns a tree without a term; a register of one term is that term."""
    kept = []
    for each in tree:
        part = _without(each, term) if isinstance(each, list) else each
        if part not in (term, []):
            kept.append(part[0] if isinstance(part, list) and len(part) == 1 else part)
    return kept
