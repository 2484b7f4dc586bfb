"""What moves tensors into blocks of channels and out of them, and enlarges them there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic import layouts
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.rule import NotKnown, Rule
from tracer.support.types import Array


class _Moves:
    """Reorders fill channels up with 0, or drop what was filled up; Upsample repeats pixels."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if kernel.attributes.get("mode", "nearest") != "nearest":
            raise NotKnown("interpolation in blocks of channels is not known")
        block = layouts.block_size()
        yield Rule(f"moved, {block} channels side by side", {"block": block})

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        (x,) = inputs.values()
        block, is_last = facts["block"], bool(kernel.attributes.get("channels_last", 0))
        if kernel.op_type == "ReorderInput":
            x = np.moveaxis(x, -1, 1) if is_last else x
            filled = np.pad(x, [(0, 0), (0, -x.shape[1] % block), (0, 0), (0, 0)])
            return [layouts.to_blocks(filled, block)]
        y = layouts.from_blocks(x, block)
        if kernel.op_type == "ReorderOutput":
            y = y[:, : kernel.attributes["channels"]]
            return [np.ascontiguousarray(np.moveaxis(y, 1, -1) if is_last else y)]
        for axis, scale in enumerate(kernel.attributes["scales"]):
            y = np.repeat(y, scale, axis)
        return [layouts.to_blocks(y, block)]


REPLAYS = {
    f"{layouts.DOMAIN}:{name}": _Moves() for name in ("ReorderInput", "ReorderOutput", "Upsample")
}
