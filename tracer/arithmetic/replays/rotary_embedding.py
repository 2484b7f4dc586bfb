"""RotaryEmbedding: one product is rounded, the other is fused with the addition, but for a rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tracer.arithmetic.functions import mlas
from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.replays.elementwise import indices_of, runs_of
from tracer.arithmetic.replays.interpreter import of_floats
from tracer.arithmetic.rule import Facts, NotKnown, Rule, are_equal
from tracer.interpreter.numeric.attention import joined_heads, split_heads
from tracer.support.types import Array

_SAMPLES = 20


class _Rotary:
    """Which pairs of channels are computed without fused multiply-add, random results tell."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        random = np.random.default_rng(0)
        pairs = _tables(kernel, kernel.values(kernel.draw(random)))[0].shape[-1]
        fits = np.ones((2, pairs), bool)
        for _ in range(_SAMPLES):
            drawn = kernel.draw(random)
            (out,) = kernel.run(drawn)
            for way in (0, 1):
                facts = {"plain": runs_of(np.full(pairs, bool(way)))}
                (replayed,) = self.replay(kernel, facts, drawn)
                same = are_equal(out, replayed).reshape(out.shape)
                heads, first, second = _parts(kernel, same, pairs)
                fits[way] &= (heads[..., first] & heads[..., second]).reshape(-1, pairs).all(0)
        if not fits.any(0).all():
            raise NotKnown("neither with nor without fused multiply-add")
        plain = runs_of(~fits[0])
        text = f", {sum(plain[1::2])} of {pairs} pairs rounded each" if plain else ""
        yield Rule(f"fused multiply-add of a product{text}", {"plain": plain})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        values = kernel.values(inputs)
        x = values[0]
        cosine, sine = _tables(kernel, values)
        heads, first, second = _parts(kernel, x, cosine.shape[-1])
        real, imaginary = heads[..., first], heads[..., second]
        out = heads.copy()
        for channels, one, other in (
            (first, cosine, -(imaginary * sine)),
            (second, sine, imaginary * cosine),
        ):
            part = mlas.multiply_add(real, one, other)
            plain = indices_of(facts["plain"])
            part[..., plain] = (real * one + other)[..., plain]
            out[..., channels] = part
        return [joined_heads(out) if x.ndim == 3 else out]


def _tables(kernel: Kernel, values: Sequence[Any]) -> tuple[Array, Array]:
    """Returns cosines and sines of each token, (N or 1, 1, L, pairs)."""
    if kernel.node.domain:
        x, places, cosines, sines = values
    else:
        x, cosines, sines, places = [*values, None][:4]
        pairs = kernel.attributes.get("rotary_embedding_dim", 0) // 2 or cosines.shape[-1]
        cosines, sines = cosines[..., :pairs], sines[..., :pairs]
    if places is not None and places.shape == (1,):
        places = places.reshape(1, 1) + np.arange(x.shape[-2])
    cosine, sine = (each if places is None else each[places] for each in (cosines, sines))
    return cosine[:, None], sine[:, None]


def _parts(kernel: Kernel, x: Array, pairs: int) -> tuple[Array, slice, slice]:
    """Returns heads (N, heads, L, size), and where each pair has its first and second channel."""
    count = kernel.attributes.get("num_heads", 0)
    heads = split_heads(x, count or x.shape[-1] // (2 * pairs)) if x.ndim == 3 else x
    if kernel.attributes.get("interleaved", 0):
        return heads, slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    return heads, slice(0, pairs), slice(pairs, 2 * pairs)


REPLAYS = of_floats({"RotaryEmbedding": _Rotary(), "com.microsoft:RotaryEmbedding": _Rotary()})
