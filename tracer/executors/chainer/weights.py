"""The parameters of a link, as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import chainer


def parameters(model: chainer.Link) -> Iterator[tuple[str, int, bytes]]:
    """Name, number of elements and content of every parameter that has a shape, each once."""
    seen: set[int] = set()
    for name, parameter in sorted(model.namedparams(include_uninit=False)):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter.size, parameter.array.tobytes()
