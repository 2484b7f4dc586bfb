"""Operators on strings: no arithmetic. Their bytes are unknown, as strings have no fixed size."""

from analyzers.cost.registry import counts, no_work

counts("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")(no_work)
