"""How data flows from kernel to kernel, and which kernels only move it."""

from collections.abc import Sequence

from tracer.records.trace import Kernel

MOVERS = frozenset(
    {"Cast", "MemcpyFromHost", "MemcpyToHost", "ReorderInput", "ReorderOutput", "Transpose"}
)
"""Operators that a runtime inserts to change the layout, type or device of a tensor."""

_BEFORE_BLOCKS = "Reshape_token_"
"""Name of a Reshape that onnxruntime inserts before a Conv in the blocked layout."""


def moves(kernel: Kernel) -> bool:
    """Returns whether a kernel only moves data, as a runtime does by itself."""
    return kernel.op_type in MOVERS or kernel.name.startswith(_BEFORE_BLOCKS)


class Flow:
    """The kernel that computed each tensor, and the open kernels: those without nodes so far."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        self._makers: dict[tuple[str, str], int] = {}
        self._open: set[int] = set()

    def pass_on(self, position: int) -> None:
        """Records the outputs of a kernel, and opens it."""
        kernel = self._kernels[position]
        self._makers.update(((kernel.scope, name), position) for name in kernel.outputs)
        self._open.add(position)

    def close(self, position: int) -> None:
        """Records that a kernel has its nodes."""
        self._open.discard(position)

    def computed_by(self, position: int) -> int:
        """Returns the kernel whose result this one moves; itself if unknown."""
        source = position
        while self._moves(source):
            makers = self._behind(source)
            if not makers:
                return position
            source = makers[0]
        return source

    def take_open_behind(self, position: int) -> list[int]:
        """Closes a kernel and the open kernels whose results it uses, and returns the latter.

        Kernels that only move data are no expansion of a node and stay without nodes.
        """
        behind: dict[int, None] = {}
        stack = [position]
        while stack:
            for maker in self._behind(stack.pop()):
                if maker in self._open and maker not in behind:
                    behind[maker] = None
                    stack.append(maker)
        self._open.discard(position)
        if all(self._moves(maker) for maker in behind):
            return []
        self._open.difference_update(behind)
        return list(behind)

    def _moves(self, position: int) -> bool:
        return moves(self._kernels[position])

    def _behind(self, position: int) -> list[int]:
        kernel = self._kernels[position]
        makers = (self._makers.get((kernel.scope, name)) for name in kernel.inputs)
        return [maker for maker in makers if maker is not None]
