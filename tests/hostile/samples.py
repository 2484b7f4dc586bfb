"""Samples for the inputs of any model, as a data set holds them."""

import numpy as np
import onnx

SAMPLES = 2
_MOST_ELEMENTS = 1 << 16


def samples(model):
    """Zeros for the inputs of a model by name, of its own shapes and types where those can be."""
    return {
        value.name: np.zeros(shape, dtype)
        for value in model.graph.input
        if (shape := _shape(value)) is not None and (dtype := _dtype(value)) is not None
        and value.name.isidentifier() and len(value.name) < 100
    }  # fmt: skip


def _shape(value):
    sizes = [size.dim_value or 1 for size in value.type.tensor_type.shape.dim]
    possible = len(sizes) < 9 and all(size > 0 for size in sizes)
    shape = [max(SAMPLES, sizes[0]), *sizes[1:]] if sizes else []
    return shape if possible and np.prod(shape, dtype=float) < _MOST_ELEMENTS else None


def _dtype(value):
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    except KeyError:
        return None
    return dtype if dtype.kind in "fiub" else None
