"""Operators whose work depends on values: it is unknown, and the reason is listed."""

from analyzers.cost.count import Count, UnknownWorkError
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts

REASONS = {
    "ImageDecoder": "its work depends on the encoded image",
    "MaxRoiPool": "the size of its windows depends on the regions",
    "MelWeightMatrix": "how many entries it computes depends on the frequencies",
    "Multinomial": "how often it draws is left to the runtime's algorithm",
    "NonMaxSuppression": "how many boxes it compares depends on the scores",
    "TfIdfVectorizer": "how many n-grams it compares depends on the text",
    "Unique": "how many elements it compares depends on the data",
}


@counts(*REASONS)
def _unknown(op: Operation) -> Count:
    raise UnknownWorkError(REASONS[op.op_type])
