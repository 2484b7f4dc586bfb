"""Element-wise arithmetic on flat float32 tensors, in one pass.

Loops run from 0 over slices: numba lets an index count from the end unless it sees that it cannot
be negative, and LLVM does not vectorise that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cfunc

from tracer.interpreter.kernels.arguments import TASK, floats


@cfunc(TASK, cache=True, error_model="numpy")
def affine(words: Any, block: int) -> None:
    """Some planes by the scale and shift of their channel, channels in turn.

    Arguments: x, scale, shift, out; planes of all and of a block, elements of a plane.
    """
    x, scale, shift, out = floats(words, 0), floats(words, 2), floats(words, 4), floats(words, 6)
    planes, each, size = words[8], words[9], words[10]
    for plane in range(block * each, min((block + 1) * each, planes)):
        factor, term = scale[plane % scale.size], shift[plane % scale.size]
        source = x[plane * size : (plane + 1) * size]
        target = out[plane * size : (plane + 1) * size]
        for i in range(size):
            target[i] = source[i] * factor + term


@cfunc(TASK, cache=True)
def relu(words: Any, block: int) -> None:
    """Some elements, 0 where negative; NaN stays. Arguments: x, out; elements of a block."""
    x, out, each = floats(words, 0), floats(words, 2), words[4]
    source = x[block * each : (block + 1) * each]
    target = out[block * each : (block + 1) * each]
    for i in range(source.size):
        value = source[i]
        target[i] = np.float32(0) if value < 0 else value
