"""Operators on strings: no arithmetic but hashes. Their bytes are unknown: strings have no size."""

from tracer.analyzers.cost.count import Count, UnknownWorkError
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts, no_work

_BLOCK = Count(adds=1, muls=3, other=3)
"""Work of MurmurHash3 per 4 bytes: three products, an addition, two rotations, an exclusive or."""

_END = Count(muls=2, other=7)
"""Work at the end of a hash: two products, three shifts, four exclusive ors."""

counts("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")(no_work)
counts("Tokenizer", domain="com.microsoft")(no_work)


@counts("MurmurHash3", domain="com.microsoft")
def _hash(op: Operation) -> Count:
    keys = op.input(0)
    if keys.nbytes is None:
        raise UnknownWorkError("how many bytes it hashes depends on the texts")
    return _BLOCK * (keys.nbytes // 4) + _END * keys.size


@counts("NGramRepeatBlock", domain="com.microsoft")
def _repeated(op: Operation) -> Count:
    """Compares every run of tokens with the last tokens, one by one."""
    rows, tokens = op.input(0).shape
    size = op.integer("ngram_size", 1)
    return Count(other=rows * max(tokens - size + 1, 0) * (size - 1))
