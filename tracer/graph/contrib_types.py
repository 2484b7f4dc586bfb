"""Which inputs and outputs of onnxruntime's own operators have equal element types.

ONNX's package has no schemas of them; a test reads those of onnxruntime. Operators with a check of
their own (`tracer.interpreter.operators`) are left out.
"""

_OPERATORS = {
    "TT T": "BiasGelu FastGelu FusedMatMul TransposeMatMul",
    "TT-T T": "ConvTransposeWithDynamicPads",
    "TUT U": "DequantizeLinear",
    "TUUT-TTTTUTU TTT": "DynamicQuantizeLSTM",
    "TUTUT T": "DynamicQuantizeMatMul",
    "TTUUUUUTT UTU": "EmbedLayerNormalization",
    "T T": "ExpandDims GatherND Gelu Inverse NhwcMaxPool QuickGelu Tokenizer Trilu UnfoldTensor"
    " Unique",
    "TTTT T": "FusedConv",
    "TTT T": "FusedGemm Range",
    "TT ": "GridSample",
    "TUVVTUV V": "MatMulIntegerToFloat",
    "T-T T": "Pad",
    "-T T": "QLinearConcat",
    "TTUUUUUTVVVVVUUUUU VT": "QEmbedLayerNormalization",
    "TUTVUV-U ": "QGemm",
    "T-TT-T-T T": "QLinearAdd QLinearMul",
    "T-T-T T": "QLinearAveragePool QLinearGlobalAveragePool QLinearLeakyRelu QLinearReduceMean"
    " QLinearSigmoid QLinearSoftmax",
    "T-TU-U-V V": "QLinearConv",
    "-TUTTUTUT T": "QLinearWhere",
    "TTU U": "QuantizeLinear",
    "TTTTT TUUT": "SkipLayerNormalization",
    "TTTT TUUT": "SkipSimplifiedLayerNormalization",
}
VARIABLES = {f"com.microsoft.{name}": text for text, names in _OPERATORS.items()
             for name in names.split()}  # fmt: skip
"""By operator a letter for each input, a blank, and one for each output; '-' may be any type."""
