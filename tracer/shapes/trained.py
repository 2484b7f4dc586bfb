"""Types of the outputs of operators of ai.onnx.ml, for most of which onnx has no inference."""

from collections.abc import Mapping

from tracer.graph.tensor_type import Dim, TensorType
from tracer.shapes.known_node import Known, Outputs, Rule


def _classified(known: Known) -> Outputs:
    """A label for each row, and a score for each row and class."""
    texts = known.length("classlabels_strings")
    classes = texts or known.length("classlabels_ints", "classlabels_int64s")
    rows = _rows(known)
    if not rows or not classes:
        return []
    labels = TensorType("string" if texts else "int64", rows)
    return [labels, TensorType("float32", (*rows, classes))]


def _estimated(known: Known) -> Outputs:
    default = 1 if known.node.op_type == "LinearRegressor" else 0
    name = "targets" if known.node.op_type == "LinearRegressor" else "n_targets"
    rows, targets = _rows(known), known.integer(name, default) or 1
    return [TensorType("float32", (*rows, targets))] if rows else []


def _forest(known: Known) -> Outputs:
    rows = _rows(known)
    return [known.typed(0, (*rows, known.integer("n_targets", 1)))] if rows else []


def _rows(known: Known) -> tuple[Dim, ...]:
    shape = known.shape(0)
    return shape[:1] if shape is not None and len(shape) == 2 else ()


def _encoded(known: Known) -> Outputs:
    shape = known.shape(0)
    if shape is None:
        return []
    for name, dtype in (
        ("values_strings", "string"), ("values_int64s", "int64"), ("values_floats", "float32"),
    ):  # fmt: skip
        if known.length(name):
            return [TensorType(dtype, shape)]
    if known.length("classes_strings"):  # opset 1: between texts and their positions
        kind = known.type_of(0)
        return [TensorType("int64" if kind and kind.dtype == "string" else "string", shape)]
    return []


def _joined(known: Known) -> Outputs:
    rows, widths = _rows(known), known.integers("inputdimensions")
    return [TensorType("float32", (*rows, sum(widths)))] if rows and widths else []


RULES: Mapping[str, Rule] = {
    "FeatureVectorizer": _joined,
    "LabelEncoder": _encoded,
    "LinearClassifier": _classified,
    "LinearRegressor": _estimated,
    "SVMClassifier": _classified,
    "SVMRegressor": _estimated,
    "TreeEnsemble": _forest,
    "TreeEnsembleClassifier": _classified,
    "TreeEnsembleRegressor": _estimated,
}
