"""Operators of classical models, domain ai.onnx.ml: scalers, linear models, trees; and of text."""

from collections.abc import Sequence

import numpy as np

from tracer.analyzers.cost.count import (
    NOTHING,
    Count,
    Operation,
    UnknownWorkError,
    counts,
    no_work,
    per_output,
    selects,
)
from tracer.analyzers.cost.rules import reduction
from tracer.analyzers.cost.rules.elementwise import PER_ELEMENT
from tracer.graph.operators import CLASSICAL, MICROSOFT
from tracer.support.types import Array

_LEAF = -1
"""The row of a leaf."""

_TRANSFORMS = {
    "NONE": NOTHING,
    "LOGISTIC": PER_ELEMENT["Sigmoid"],
    "SOFTMAX": reduction.PER_ELEMENT,
    "SOFTMAX_ZERO": reduction.PER_ELEMENT + Count(other=1),
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
       "OneHotEncoder", "ZipMap", domain=CLASSICAL)(no_work)  # fmt: skip
counts("ArrayFeatureExtractor", domain=CLASSICAL, moves=selects, settings=(1,))(no_work)

counts("Binarizer", "Imputer", domain=CLASSICAL)(per_output(Count(other=1)))  # a comparison
counts("Scaler", domain=CLASSICAL)(per_output(Count(adds=1, muls=1)))


@counts("Normalizer", domain=CLASSICAL)
def _normalizer(op: Operation) -> Count:
    """Divides by the largest value, the sum of sizes, or the root of the sum of squares."""
    elements, rows = op.input(0).size, _rows(op)
    norm = op.text("norm", "MAX")
    roots = Count(other=rows if norm == "L2" else 0)
    return _NORMS[norm] * elements + roots


@counts(
    "LinearClassifier", "LinearRegressor", domain=CLASSICAL, learned=("coefficients", "intercepts")
)
def _linear(op: Operation) -> Count:
    weights, shifts = len(op.numbers("coefficients")), len(op.numbers("intercepts"))
    features = max(op.input(0).shape[-1], 1)
    scores = weights // features
    each = Count(macs=weights, adds=shifts) + _transform(op) * scores
    return each * _rows(op)


@counts(
    "SVMClassifier", "SVMRegressor", domain=CLASSICAL,
    learned=("support_vectors", "coefficients", "rho", "prob_a", "prob_b"),
)  # fmt: skip
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


@counts("TreeEnsembleClassifier", "TreeEnsembleRegressor", domain=CLASSICAL)
def _trees_of_columns(op: Operation) -> Count:
    names = "nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids"
    trees, nodes, *below = map(op.array, names)
    is_leaf = op.is_text("nodes_modes", "LEAF")
    _, first, tree_at = np.unique(trees, return_index=True, return_inverse=True)
    numbers, node_at = np.unique(nodes, return_inverse=True)
    keys = tree_at * len(numbers) + node_at
    order = np.argsort(keys, kind="stable")
    children = []
    for child in below:
        at = np.minimum(np.searchsorted(numbers, child), len(numbers) - 1)
        wanted = tree_at * len(numbers) + at
        rows = order[np.searchsorted(keys, wanted, "right", sorter=order) - 1]
        is_branch = (keys[rows] == wanted) & (numbers[at] == child) & ~is_leaf[rows]
        children.append(np.where(is_branch, rows, _LEAF))
    return _descents(op, children, np.where(is_leaf[first], _LEAF, first))


@counts("TreeEnsemble", domain=CLASSICAL)
def _trees(op: Operation) -> Count:
    names = (
        ("nodes_truenodeids", "nodes_trueleafs"),
        ("nodes_falsenodeids", "nodes_falseleafs"),
    )
    children = [np.where(op.array(leafs), _LEAF, op.array(rows)) for rows, leafs in names]
    return _descents(op, children, op.array("tree_roots"))


def _descents(op: Operation, children: Sequence[Array], roots: Array) -> Count:
    """A comparison for each node between root and leaf, and an addition for each tree.

    `children` are the rows of both nodes below each row. Raises UnknownWorkError with the least and
    the most comparisons where leaves lie at different depths.
    """
    low, high = (int(depths.sum()) for depths in _leaf_depths(children, roots))
    if low != high:
        raise UnknownWorkError(
            "how deep a row goes into its trees depends on the data "
            f"({low:,} to {high:,} comparisons for a row)"
        )
    return (Count(adds=len(roots), other=low)) * _rows(op)


def _leaf_depths(children: Sequence[Array], roots: Array) -> tuple[Array, Array]:
    """Returns the depths of the highest and the deepest leaf of each tree, level by level."""
    least, most = np.full(len(roots), len(children[0]) + 1), np.zeros(len(roots), np.int64)
    seen = np.zeros(len(children[0]), np.bool_)
    rows, trees, depth, visited = roots, np.arange(len(roots)), 0, 0
    while len(rows):
        is_end = rows == _LEAF
        ends = trees[is_end]
        least[ends], most[ends] = np.minimum(least[ends], depth), depth
        rows, trees, depth = rows[~is_end], trees[~is_end], depth + 1
        seen[rows] = True
        visited += len(rows)
        if visited > np.count_nonzero(seen):
            raise UnknownWorkError("a node of its trees is below several others")
        rows = np.concatenate([child[rows] for child in children])
        trees = np.concatenate([trees, trees])
    return least, most


def _transform(op: Operation) -> Count:
    return _TRANSFORMS[op.text("post_transform", "NONE")]


def _rows(op: Operation) -> int:
    shape = op.input(0).shape
    return shape[0] if len(shape) > 1 else 1


_BLOCK = Count(adds=1, muls=3, other=3)
"""Work of MurmurHash3 per 4 bytes: three products, an addition, two rotations, an exclusive or."""

_END = Count(muls=2, other=7)
"""Work at the end of a hash: two products, three shifts, four exclusive ors."""

counts("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")(no_work)
counts("Tokenizer", domain=MICROSOFT)(no_work)


@counts("MurmurHash3", domain=MICROSOFT)
def _hash(op: Operation) -> Count:
    keys = op.input(0)
    if keys.nbytes is None:
        raise UnknownWorkError("how many bytes it hashes depends on the texts")
    return _BLOCK * (keys.nbytes // 4) + _END * keys.size


@counts("NGramRepeatBlock", domain=MICROSOFT)
def _repeated(op: Operation) -> Count:
    """Compares every run of tokens with the last tokens, one by one."""
    rows, tokens = op.input(0).shape
    size = op.integer("ngram_size", 1)
    return Count(other=rows * max(tokens - size + 1, 0) * (size - 1))
