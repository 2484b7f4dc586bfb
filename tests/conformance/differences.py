"""Why results differ from onnxruntime's, and where no shape is known before a run."""

_BEYOND = "an axis that an empty tensor does not have is refused here"
_NOT_FOLDED = (
    "onnxruntime keeps the size of a folded axis where the tensor is empty, ONNX makes it 1"
)
_OTHER_DRAWS = "onnxruntime draws other random numbers"
_WINDOWS = (
    "with auto_pad SAME, onnxruntime leaves dilations out of the padding, and its outputs are"
    " smaller than ONNX's size / stride; a window larger than the padded input is refused here, and"
    " gives an empty tensor in onnxruntime"
)
_NO_CLASS = "a class of -1 that is not left out is refused here; onnxruntime reads what is beside"
_TOGETHER = (
    "onnxruntime leaves empty tensors out, whatever their other sizes; here they are refused"
)

DIFFERENCES = {
    **dict.fromkeys(
        ("ArgMax", "ArgMin"),
        f"the place of one of no elements is refused here, and {_BEYOND}; {_NOT_FOLDED}",
    ),
    "Attention": "masked scores in the fourth output are -inf, in onnxruntime the lowest float",
    "AveragePool": _WINDOWS,
    **dict.fromkeys(
        ("BlackmanWindow", "HammingWindow", "HannWindow"),
        "a window of one sample is NaN in onnxruntime, which divides 0 by 0",
    ),
    "CDist": "onnxruntime expands the squares, and equal points are 0.0002 apart",
    "CenterCropPad": "a size of -1 is refused here",
    "Compress": "a condition longer than its axis is refused here; onnxruntime drops the rest",
    **dict.fromkeys(
        ("Concat", "ConcatFromSequence", "SequenceConstruct", "SequenceErase"), _TOGETHER
    ),
    "CumProd": _BEYOND,
    "CumSum": _BEYOND,
    "DFT": "a transform of no points is refused here",
    **dict.fromkeys(("Dropout", "Multinomial", "RandomNormal", "RandomUniform"), _OTHER_DRAWS),
    "GatherND": (
        "indices without coordinates, or of another number of batches than the data, are refused"
        " here"
    ),
    "GridSample": "onnxruntime reflects far positions in single precision, unlike torch",
    "LSTM": "onnxruntime does not clip the cell state before its activation",
    "LpPool": (
        f"{_WINDOWS}; with auto_pad SAME and strides longer than the window it cuts the input"
    ),
    "MaxPool": _WINDOWS,
    "MaxUnpool": (
        "onnxruntime counts the places in the output, ONNX in the unpadded output; places outside"
        " are refused here"
    ),
    "MeanVarianceNormalization": "equal elements are NaN in onnxruntime, which adds nothing to 0",
    "NegativeLogLikelihoodLoss": _NO_CLASS,
    "Resize": (
        "onnxruntime takes the rounded length of the output, ONNX scale x length; it does not crop"
        " an axis whose size stays, and computes positions in single precision"
    ),
    "ReverseSequence": "a negative batch_axis is refused here",
    "RoiAlign": "an image of no pixels is refused here",
    "RotaryEmbedding": "onnxruntime leaves the last of an odd number of rotated elements unset",
    "SoftmaxCrossEntropyLoss": _NO_CLASS,
    "Split": "other num_outputs than there are outputs is refused here",
    "StringSplit": "onnxruntime drops blanks at the end of an unsplit rest, Python keeps them",
    "TreeEnsemble": "no rows are refused here, by ONNX's reference",
    **dict.fromkeys(
        (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
            "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        ),
        _NOT_FOLDED,
    ),
}  # fmt: skip
"""The operators whose results differ in some case, and why."""

_OF_A_SEQUENCE = "the type of a sequence does not tell the shapes of its tensors"

UNKNOWN = {
    "NegativeLogLikelihoodLoss": "onnx infers none for weights of another number than classes",
    "NonMaxSuppression": "values tell how many boxes are kept",
    "NonZero": "values tell how many are not 0",
    "StringNormalizer": "texts tell how many are not stop words",
    "StringSplit": "texts tell into how many parts they are split",
    "Unique": "values tell how many differ",
    **dict.fromkeys(
        (
            "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
            "SequenceErase",
        ),
        _OF_A_SEQUENCE,
    ),
}  # fmt: skip
"""The operators with an output whose shape only a run tells, and why."""
