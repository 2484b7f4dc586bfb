"""Tensors in blocks of channels, as onnxruntime's domain com.microsoft.nchwc has them.

Kernels move tensors into these blocks and out of them, and enlarge them there.
"""

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
from onnx import helper

from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.support.types import Array

DOMAIN = "com.microsoft.nchwc"


@cache
def block_size() -> int:
    """Returns how many channels a block has on this processor: onnxruntime's kernel shows it."""
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    shape = 1, 64, 2, 1  # the second pixel of channel 0 comes after the first of a whole block
    kernel = Kernel(node, {"x": (np.dtype(np.float32), shape)}, {}, {"": 17, DOMAIN: 1})
    (reordered,) = kernel.run({"x": np.arange(128, dtype=np.float32).reshape(shape)})
    return int(np.flatnonzero(reordered.ravel() == 1)[0])


def from_blocks(x: Array, block: int) -> Array:
    """Returns a tensor (N, C, *size) of one in blocks of channels, which has the same shape."""
    size = x.shape[2:]
    blocks = x.reshape(len(x), x.shape[1] // block, *size, block)
    return np.ascontiguousarray(np.moveaxis(blocks, -1, 2)).reshape(x.shape)


def to_blocks(x: Array, block: int) -> Array:
    """Returns a tensor (N, C, *size) in blocks of channels; C is a multiple of the block."""
    size = x.shape[2:]
    blocks = x.reshape(len(x), x.shape[1] // block, block, *size)
    return np.ascontiguousarray(np.moveaxis(blocks, 2, -1)).reshape(x.shape)


def weights_from_blocks(w: Array, block: int) -> Array:
    """Returns weights (M, C, *kernel) of those in blocks of M, and of C where C fills any."""
    maps, channels, *kernel = w.shape
    inner = block if channels % block == 0 else 1
    volume = math.prod(kernel)
    blocks = w.reshape(maps // block, channels // inner, volume, inner, block)
    return np.ascontiguousarray(blocks.transpose(0, 4, 1, 3, 2)).reshape(w.shape)


class _Moves:
    """Reorders fill channels up with 0, or drop what was filled up; Upsample repeats pixels."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if kernel.attributes.get("mode", "nearest") != "nearest":
            raise NotKnown("interpolation in blocks of channels is not known")
        block = block_size()
        yield Rule(f"moved, {block} channels side by side", {"block": block})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = inputs.values()
        block, is_last = facts["block"], bool(kernel.attributes.get("channels_last", 0))
        if kernel.op_type == "ReorderInput":
            x = np.moveaxis(x, -1, 1) if is_last else x
            filled = np.pad(x, [(0, 0), (0, -x.shape[1] % block), (0, 0), (0, 0)])
            return [to_blocks(filled, block)]
        y = from_blocks(x, block)
        if kernel.op_type == "ReorderOutput":
            y = y[:, : kernel.attributes["channels"]]
            return [np.ascontiguousarray(np.moveaxis(y, 1, -1) if is_last else y)]
        for axis, scale in enumerate(kernel.attributes["scales"]):
            y = np.repeat(y, scale, axis)
        return [to_blocks(y, block)]


REPLAYS = {f"{DOMAIN}:{name}": _Moves() for name in ("ReorderInput", "ReorderOutput", "Upsample")}
