"""Operators of classical models, domain ai.onnx.ml: scalers, linear models, kernels, trees."""

from collections.abc import Mapping
from typing import TypeAlias

from analyzers.cost import traffic
from analyzers.cost.activations import PER_ELEMENT
from analyzers.cost.count import NOTHING, Count, UnknownWorkError
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts, no_work, per_output
from analyzers.cost.rules import softmax

_ML = "ai.onnx.ml"
_Place: TypeAlias = tuple[int, int]
"""A node of a tree: the tree and its number; or whether it is a leaf, and its number."""

_TRANSFORMS = {
    "NONE": NOTHING,
    "LOGISTIC": PER_ELEMENT["Sigmoid"],
    "SOFTMAX": softmax.PER_ELEMENT,
    "SOFTMAX_ZERO": softmax.PER_ELEMENT + Count(other=1),
    "PROBIT": Count(adds=3, muls=5, other=4),
}
"""Work per score after a classifier or regressor."""

_KERNELS = {
    "LINEAR": (NOTHING, NOTHING),
    "POLY": (NOTHING, Count(adds=1, muls=1, other=1)),
    "RBF": (Count(adds=1), Count(muls=1, other=1)),
    "SIGMOID": (NOTHING, Count(adds=1, muls=1, other=1)),
}
"""Work besides the MACs: per feature of a support vector, and per kernel."""

_NORMS = {"MAX": Count(other=2), "L1": Count(adds=1, other=2), "L2": Count(macs=1, other=1)}

# tables, selections, and maps
counts("CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer", "LabelEncoder",
       "OneHotEncoder", "ZipMap", domain=_ML)(no_work)  # fmt: skip
counts("ArrayFeatureExtractor", domain=_ML, moves=traffic.selects, settings=(1,))(no_work)

counts("Binarizer", "Imputer", domain=_ML)(per_output(Count(other=1)))  # a comparison
counts("Scaler", domain=_ML)(per_output(Count(adds=1, muls=1)))


@counts("Normalizer", domain=_ML)
def _normalizer(op: Operation) -> Count:
    """Divides by the largest value, the sum of sizes, or the root of the sum of squares."""
    elements, rows = op.input(0).size, _rows(op)
    norm = op.text("norm", "MAX")
    roots = Count(other=rows if norm == "L2" else 0)
    return _NORMS[norm] * elements + roots


@counts("LinearClassifier", "LinearRegressor", domain=_ML)
def _linear(op: Operation) -> Count:
    weights, shifts = len(op.numbers("coefficients")), len(op.numbers("intercepts"))
    features = max(op.input(0).shape[-1], 1)
    scores = weights // features
    each = Count(macs=weights, adds=shifts) + _transform(op) * scores
    return each * _rows(op)


@counts("SVMClassifier", "SVMRegressor", domain=_ML)
def _support_vectors(op: Operation) -> Count:
    """Counts the kernels of a row with all support vectors, and their weighted sums."""
    features = max(op.input(0).shape[-1], 1)
    numbers = len(op.numbers("support_vectors"))
    weights, shifts = len(op.numbers("coefficients")), len(op.numbers("rho"))
    per_feature, per_kernel = _KERNELS[op.text("kernel_type", "LINEAR")]
    kernels = (Count(macs=1) + per_feature) * numbers + per_kernel * (numbers // features)
    coupling = (PER_ELEMENT["Sigmoid"] + Count(adds=1, muls=1)) * len(op.numbers("prob_a"))
    sums = Count(macs=weights, adds=shifts) + coupling + _transform(op) * shifts
    return (kernels + sums) * _rows(op)


@counts("TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=_ML)
def _trees_of_columns(op: Operation) -> Count:
    names = "nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids"
    columns = zip(*(op.integers(name) for name in names), op.texts("nodes_modes"), strict=True)
    branches: dict[_Place, tuple[_Place, _Place] | None] = {}
    roots: dict[int, _Place] = {}  # the first node of each tree
    for tree, node, yes, no, mode in columns:
        branches[tree, node] = None if mode == "LEAF" else ((tree, yes), (tree, no))
        roots.setdefault(tree, (tree, node))
    return _descents(op, branches, list(roots.values()))


@counts("TreeEnsemble", domain=_ML)
def _trees(op: Operation) -> Count:
    names = "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs"
    columns = zip(*(op.integers(name) for name in names), strict=True)
    branches: dict[_Place, tuple[_Place, _Place] | None] = {
        (0, node): ((is_leaf, yes), (is_other_leaf, no))
        for node, (yes, is_leaf, no, is_other_leaf) in enumerate(columns)
    }
    return _descents(op, branches, [(0, root) for root in op.integers("tree_roots")])


def _descents(
    op: Operation, branches: Mapping[_Place, tuple[_Place, _Place] | None], roots: list[_Place]
) -> Count:
    """A comparison for each node between root and leaf, and an addition for each tree.

    What `branches` lacks, or has as None, is a leaf. Raises UnknownWorkError with the least and the
    most comparisons where leaves lie at different depths.
    """
    depths = [_leaf_depths(branches, root) for root in roots]
    low, high = sum(map(min, depths)), sum(map(max, depths))
    if low != high:
        raise UnknownWorkError(
            "how deep a row goes into its trees depends on the data "
            f"({low:,} to {high:,} comparisons for a row)"
        )
    return (Count(adds=len(depths), other=low)) * _rows(op)


def _leaf_depths(
    branches: Mapping[_Place, tuple[_Place, _Place] | None], root: _Place
) -> list[int]:
    """Returns the depths of the leaves of a tree."""
    waiting, depths = [(root, 0)], list[int]()
    while waiting:
        place, depth = waiting.pop()
        below = branches.get(place)
        if below is None or depth > len(branches):
            depths.append(depth)
        else:
            waiting += [(next_place, depth + 1) for next_place in below]
    return depths


def _transform(op: Operation) -> Count:
    return _TRANSFORMS[op.text("post_transform", "NONE")]


def _rows(op: Operation) -> int:
    shape = op.input(0).shape
    return shape[0] if len(shape) > 1 else 1
