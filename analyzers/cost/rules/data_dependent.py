"""Operators whose work depends on values: it is unknown, and the reason is listed."""

from tracer.analyzers.cost.count import Count, UnknownWorkError
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts

REASONS = {
    "ImageDecoder": "its work depends on the encoded image",
    "MaxRoiPool": "the size of its windows depends on the regions",
    "MelWeightMatrix": "how many entries it computes depends on the frequencies",
    "Multinomial": "how often it draws is left to the runtime's algorithm",
    "NonMaxSuppression": "how many boxes it compares depends on the scores",
    "TfIdfVectorizer": "how many n-grams it compares depends on the text",
    "Unique": "how many elements it compares depends on the data",
}

_TOKENS = "how often it runs its decoder depends on the tokens that it generates"
MICROSOFT_REASONS = {
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), _TOKENS),
    "BifurcationDetector": "how many tokens it compares depends on the tokens",
    "SparseAttention": "which blocks of scores it computes is in its inputs",
    "SparseToDenseMatMul": "how many products it adds depends on what is not 0",
    "Unique": REASONS["Unique"],
}


@counts(*REASONS)
def _unknown(op: Operation) -> Count:
    raise UnknownWorkError(REASONS[op.op_type])


@counts(*MICROSOFT_REASONS, domain="com.microsoft")
def _unknown_of_microsoft(op: Operation) -> Count:
    raise UnknownWorkError(MICROSOFT_REASONS[op.op_type])
