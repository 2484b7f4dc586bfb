"""Written cases of the domain ai.onnx.ml; `written` says what they are."""

from tests.conformance.written import Written

_TREE = """nodes_falsenodeids = [4, 3, 0, 0, 0, 2, 0, 0],
    nodes_featureids = [1, 0, 0, 0, 0, 2, 0, 0],
    nodes_modes = ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"],
    nodes_nodeids = [0, 1, 2, 3, 4, 0, 1, 2], nodes_treeids = [0, 0, 0, 0, 0, 1, 1, 1],
    nodes_truenodeids = [1, 2, 0, 0, 0, 1, 0, 0],
    nodes_values = [0.1, -0.4, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0]"""
_CLASSES = """class_ids = [0, 1, 2, 0, 1], class_nodeids = [2, 3, 4, 1, 2],
    class_treeids = [0, 0, 0, 1, 1], class_weights = [0.25, 0.5, 0.75, 0.125, 1.5],
    classlabels_int64s = [7, 8, 9]"""
_TARGETS = """target_nodeids = [2, 3, 4, 1, 2], target_treeids = [0, 0, 0, 1, 1],
    target_weights = [0.25, 0.5, 0.75, 0.125, 1.5], """
_ONE_TARGET = _TARGETS + "n_targets = 1, target_ids = [0, 0, 0, 0, 0]"
_TWO_TARGETS = _TARGETS + "n_targets = 2, target_ids = [0, 1, 0, 0, 1]"

CASES: dict[str, list[Written]] = {
    "DictVectorizer": [
        Written("(map(string, float) x) => (float[3] y) { v = ai.onnx.ml.DictVectorizer"
                ' <string_vocabulary = ["b", "?", "a"]> (x)'
                " n = Constant <value_ints = [3]> () y = Reshape (v, n) }")  # ORT adds a row
    ],
    "FeatureVectorizer": [
        Written("(float[2,3] a, float[2,2] b) => (float[2,5] y)"
                " { y = ai.onnx.ml.FeatureVectorizer <inputdimensions = [3, 2]> (a, b) }")
    ],
    "Imputer": [
        Written("(float[3,2] x) => (float[3,2] y) { zero = Constant <value = float {0.0}> ()"
                " low = Less (x, zero) r = Where (low, zero, x)"
                " y = ai.onnx.ml.Imputer <imputed_value_floats = [1.5, 2.5],"
                " replaced_value_float = 0.0> (r) }")
    ],
    "LabelEncoder": [
        Written("(int64[6] x) => (string[6] y) { y = ai.onnx.ml.LabelEncoder"
                ' <classes_strings = ["a", "b"], default_string = "?"> (x) }', until=1),
        Written("(string[6] x) => (int64[6] y) { y = ai.onnx.ml.LabelEncoder"
                ' <classes_strings = ["b", "a"], default_int64 = 9> (x) }', until=1),
    ],
    "LinearClassifier": [
        Written("(float[4,3] x) => (int64[4] l, float[4,3] y) { l, y = ai.onnx.ml.LinearClassifier"
                " <classlabels_ints = [4, 5, 6], coefficients = [1.0, 2.0, 3.0, -1.0, 0.5, 2.0,"
                " 0.1, 0.2, 0.3], intercepts = [0.1, -0.2, 0.0], multi_class = 1,"
                f' post_transform = "{transform}"> (x) }}')
        for transform in ("NONE", "SOFTMAX", "LOGISTIC")
    ],
    "LinearRegressor": [
        Written("(float[4,3] x) => (float[4,2] y) { y = ai.onnx.ml.LinearRegressor"
                " <coefficients = [1.0, 2.0, 3.0, -1.0, 0.5, 2.0], intercepts = [0.1, -0.2],"
                " targets = 2> (x) }")
    ],
    "Normalizer": [
        Written("(float[4,3] x) => (float[4,3] y)"
                f' {{ y = ai.onnx.ml.Normalizer <norm = "{norm}"> (x) }}')
        for norm in ("MAX", "L1", "L2")
    ] + [
        Written(f"({kind} x, {kind} z) => (float[?] y) {{ d = Sub (x, z)"
                f' y = ai.onnx.ml.Normalizer <norm = "{norm}"> (d) }}')
        for kind in ("float[4,3]", "float[3]", "int64[4,3]") for norm in ("MAX", "L1", "L2")
    ],
    "OneHotEncoder": [
        Written("(int64[6] x) => (float[6,3] y)"
                " { y = ai.onnx.ml.OneHotEncoder <cats_int64s = [0, 2, 4]> (x) }")
    ],
    "SVMRegressor": [
        Written("(float[4,2] x) => (float[4,1] y) { y = ai.onnx.ml.SVMRegressor"
                " <coefficients = [1.0, -0.5, 0.25], kernel_params = [0.4, 0.1, 2.0],"
                f' kernel_type = "{kernel}", n_supports = 3, rho = [0.2],'
                " support_vectors = [0.5, 1.0, -1.0, 0.3, 0.2, -0.7]> (x) }")
        for kernel in ("LINEAR", "RBF", "POLY", "SIGMOID")
    ],
    "SVMClassifier": [
        Written("(float[4,2] x) => (int64[4] l, float[?,?] y) { l, y = ai.onnx.ml.SVMClassifier"
                " <classlabels_ints = [3, 4], coefficients = [1.0, -0.5, 0.25],"
                f' kernel_params = [0.4, 0.1, 2.0], kernel_type = "{kernel}", rho = [0.2],'
                " support_vectors = [0.5, 1.0, -1.0, 0.3, 0.2, -0.7],"
                " vectors_per_class = [2, 1]> (x) }")
        for kernel in ("LINEAR", "RBF")
    ],
    "Scaler": [
        Written("(float[4,3] x) => (float[4,3] y) { y = ai.onnx.ml.Scaler"
                " <offset = [0.5, 1.0, -1.0], scale = [2.0, 0.5, 3.0]> (x) }")
    ],
    "TreeEnsembleClassifier": [
        Written("(float[9,3] x) => (int64[9] l, float[9,3] y)"
                f" {{ l, y = ai.onnx.ml.TreeEnsembleClassifier <{_CLASSES}, {_TREE}> (x) }}")
    ],
    "TreeEnsembleRegressor": [
        Written("(float[9,3] x) => (float[?,?] y) { y = ai.onnx.ml.TreeEnsembleRegressor"
                f' <aggregate_function = "{how}", {targets}, {_TREE}> (x) }}')
        for how, targets in (("SUM", _TWO_TARGETS), ("AVERAGE", _TWO_TARGETS),
                             ("MIN", _ONE_TARGET), ("MAX", _ONE_TARGET))
    ],
    "ZipMap": [
        Written("(float[2,3] x) => (seq(map(int64, float)) y)"
                " { y = ai.onnx.ml.ZipMap <classlabels_int64s = [4, 5, 6]> (x) }")
    ],
}  # fmt: skip
