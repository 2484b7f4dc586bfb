"""Operators that only view, select, copy or rearrange data, and work that depends on data."""

from functools import partial

from tracer.analyzers.cost.count import (
    NOTHING,
    Count,
    Operation,
    UnknownWorkError,
    counts,
    everything,
    no_work,
    nothing,
    only_writes,
    per_output,
    selects,
    total,
)
from tracer.graph.operators import MICROSOFT

# views
counts("Reshape", "Squeeze", "Unsqueeze", moves=nothing, settings=(1,))(no_work)
counts("Flatten", "Identity", "BitCast", moves=nothing)(no_work)
counts("ExpandDims", domain=MICROSOFT, moves=nothing, settings=(1,))(no_work)
counts("Constant", moves=nothing)(no_work)  # a stored tensor: nothing runs

# descriptions
counts("Shape", "Size", moves=only_writes)(no_work)

# selections
counts("Gather", "GatherElements", "GatherND", "Compress", "CenterCropPad", "ReverseSequence",
       "Trilu", moves=selects, settings=(1,))(no_work)  # fmt: skip
counts("Slice", "Split", moves=selects, settings=(1, 2, 3, 4))(no_work)
counts("GatherND", "Trilu", domain=MICROSOFT, moves=selects, settings=(1,))(no_work)

# copies
counts("Transpose", "Concat", "DepthToSpace", "SpaceToDepth")(no_work)
counts("Expand", "Tile", "OneHot", settings=(1, 2))(no_work)
counts("Pad", domain=("", MICROSOFT), settings=(1, 2, 3))(no_work)
counts("UnfoldTensor", domain=MICROSOFT)(no_work)
counts("MaxUnpool", "TensorScatter", settings=(2,))(no_work)
counts("Scatter", settings=(1,))(no_work)
counts("ReorderInput", "ReorderOutput", domain="com.microsoft.nchwc")(no_work)


@counts("ScatterElements", "ScatterND", settings=(1,))
def _scatter_reduce(op: Operation) -> Count:
    reduction = op.text("reduction", "none")
    if reduction == "none":
        return NOTHING
    one = {"add": Count(adds=1), "mul": Count(muls=1)}.get(reduction, Count(other=1))
    return one * op.input(2).size


def _trains(op: Operation) -> bool:
    if op.opset < 7:
        return op.integer("is_test", 0) == 0
    mode = op.constant(2)  # a flag that is fed counts as false: inference
    return mode is not None and bool(mode.reshape(-1)[0])


@counts("Dropout", settings=(1, 2),
        moves=lambda op: (everything if _trains(op) else nothing)(op))  # fmt: skip
def _dropout(op: Operation) -> Count:
    """Training draws a number, compares it, masks and scales; inference passes its input on."""
    return Count(muls=2, other=2) * op.input(0).size if _trains(op) else NOTHING


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
@counts(*MICROSOFT_REASONS, domain=MICROSOFT)
def _unknown(op: Operation) -> Count:
    raise UnknownWorkError((REASONS | MICROSOFT_REASONS)[op.op_type])


counts("If", "Loop", "Scan", "SequenceMap", moves=nothing)(no_work)
counts("Optional", "OptionalGetElement", "OptionalHasElement", moves=nothing)(no_work)
counts("SequenceConstruct", "SequenceEmpty", "SequenceLength", moves=nothing)(no_work)
counts("SequenceAt", "SequenceErase", moves=nothing, settings=(1,))(no_work)
counts("SequenceInsert", moves=nothing, settings=(2,))(no_work)


# A sequence has no size of its own: as many bytes are read as written.
counts("ConcatFromSequence", moves=lambda op: (total(op.outputs()),) * 2)(no_work)
counts("SplitToSequence", moves=lambda op: (op.input(0).nbytes,) * 2, settings=(1,))(no_work)

_generates = partial(counts, moves=only_writes)

_generates("ConstantOfShape", settings=(0,))(no_work)
_generates("EyeLike")(no_work)

_RANGE = per_output(Count(adds=1, muls=1))  # start + index × delta
_generates("Range", domain=("", MICROSOFT), settings=(0, 1, 2))(_RANGE)

_DRAW = per_output(Count(adds=1, muls=1, other=1))  # a draw, scaled and shifted
_generates("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")(_DRAW)
counts("Bernoulli")(per_output(Count(other=2)))  # a draw and a comparison

_COSINE = per_output(Count(adds=1, muls=2, other=1))  # a0 - a1 cos(2 pi n / N)
_generates("HannWindow", "HammingWindow", settings=(0,))(_COSINE)
_BLACKMAN = per_output(Count(adds=2, muls=4, other=2))  # the same + a2 cos(4 pi n / N)
_generates("BlackmanWindow", settings=(0,))(_BLACKMAN)
