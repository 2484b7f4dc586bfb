"""Operators on strings: no arithmetic; their bytes are unknown, as strings have no fixed size."""

from analyzers.cost.count import NOTHING, Count
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts


@counts("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")
def _strings(op: Operation) -> Count:
    return NOTHING
