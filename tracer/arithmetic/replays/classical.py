"""Classical models: a product as of a Gemm whose weights are not packed, and norms of rows.

Source: onnxruntime's `linearclassifier.cc` and `normalizer.cc` in `core/providers/cpu/ml`.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tracer.arithmetic.functions import c_library, mlas
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import attention, of_floats, replay_of
from tracer.graph.operators import CLASSICAL
from tracer.support.types import Array

_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX")


class _Linear:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        transform = kernel.attributes.get("post_transform", "NONE")
        if transform not in _TRANSFORMS:
            raise NotKnown(f"the transform {transform} is not known")
        weights = _weights(kernel)
        if len(weights) < 2 and (_is_classifier(kernel) or transform != "NONE"):
            raise NotKnown("a second class, and transforms of a single target, are not known")
        product = attention.reveal_part(_product(kernel, weights))
        facts = {"product": product.facts}
        if transform != "SOFTMAX":
            yield Rule(product.text, facts)
            return
        rows = attention.part("Softmax", (_rows(kernel), len(weights)))
        lanes = attention.reveal_part(rows).facts["lanes"]
        yield Rule(f"{product.text}; a softmax, in {lanes} lanes", {**facts, "lanes": lanes})
        yield Rule(f"{product.text}; a softmax by the C library", facts)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x = np.ascontiguousarray(kernel.values(inputs)[0].reshape(_rows(kernel), -1))
        weights = _weights(kernel)
        step = _product(kernel, weights)
        given = dict(zip(step.inputs, (x, weights, _biases(kernel)), strict=False))
        (scores,) = replay_of("", "Gemm").replay(step, facts["product"], given)
        outputs = [scores]
        if _is_classifier(kernel):
            own = kernel.attributes
            names = own.get("classlabels_ints") or own.get("classlabels_strings", [])
            labels = np.array([n.decode() if isinstance(n, bytes) else n for n in names])
            outputs.insert(0, labels[scores.argmax(1)])
        match kernel.attributes.get("post_transform", "NONE"):
            case "LOGISTIC":
                outputs[-1] = mlas.logistic(scores)
            case "SOFTMAX":
                outputs[-1] = _softmax(scores, facts.get("lanes", 0))
        return [v for name, v in zip(kernel.node.output, outputs, strict=False) if name]


def _softmax(scores: Array, lanes: int) -> Array:
    """Returns the softmax of rows, in lanes or, without any, one after the other."""
    if not lanes:  # as it is of few classes
        powers = c_library.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(powers / np.add.accumulate(powers, 1)[:, -1:])
    return attention.softmax(scores, lanes)


def _is_classifier(kernel: Kernel) -> bool:
    return kernel.op_type == "LinearClassifier"


def _biases(kernel: Kernel) -> Array:
    return np.array(kernel.attributes.get("intercepts", []), np.float32)


def _weights(kernel: Kernel) -> Array:
    """Returns the weights (targets, features)."""
    weights = np.array(kernel.attributes["coefficients"], np.float32)
    targets = len(_biases(kernel)) if _is_classifier(kernel) else kernel.attributes["targets"]
    return weights.reshape(targets, -1)


def _rows(kernel: Kernel) -> int:
    shape = kernel.shape(0) or ()
    return shape[0] if len(shape) > 1 else 1


def _product(kernel: Kernel, weights: Array) -> Kernel:
    biases = [(len(weights),)] * (len(_biases(kernel)) == len(weights))
    shapes = (_rows(kernel), weights.shape[1]), weights.shape, *biases
    return replace(attention.part("Gemm", *shapes, transB=1), threads=kernel.threads)


class _Normalizer:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule("a row's numbers added one after the other")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        norm = kernel.attributes.get("norm", "MAX")
        if norm == "MAX":
            total = x.max(-1, keepdims=True)
            return [np.where(total != 0, x / total, x)]
        parts = np.abs(x) if norm == "L1" else x * x
        total = np.add.accumulate(parts, -1)[..., -1:]
        roots = np.sqrt(parts / total)
        scaled = x / total if norm == "L1" else np.where(x < 0, -roots, roots)
        return [np.where(total != 0, scaled, x)]


REPLAYS = of_floats(
    {
        f"{CLASSICAL}:LinearClassifier": _Linear(),
        f"{CLASSICAL}:LinearRegressor": _Linear(),
        f"{CLASSICAL}:Normalizer": _Normalizer(),
    }
)
