"""Orders of loop nests against Python's own loops, written from the text of the nest alone."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.nodes import int8, model, multiplied, narrowed
from tests.examples import examples
from tracer.accumulators.engine import dots
from tracer.accumulators.engine.float_arithmetic import sum_products
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.float_accumulator import float_accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import UsageError

AXES = ("ic", "kz", "ky", "kx")


def clipped(total, bits):
    return min(max(total, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


@dataclass
class Loops:
    """The loops of a text over `extents` of the axes, which add what `product` returns."""

    text: str
    extents: dict
    bits: int
    product: object

    def total(self):
        spelled = [loop.split(":") for loop in self.text.split(",")]
        own = [(name, *rest) for name, *rest in spelled if name in AXES]
        self.loops, steps = [], dict.fromkeys(AXES, 1)
        for name, *rest in reversed(own):
            others = [int(r[0]) for n, *r in own if n == name and r and r[0].isdigit()]
            left = -(-self.extents[name] // math.prod(others))
            size = int(rest[0]) if rest and rest[0].isdigit() else left
            register = next((int(word) for word in rest[1:] if word.isdigit()), None)
            self.loops.insert(0, (name, size, steps[name], register, "parallel" in rest))
            steps[name] *= size
        return self.added(0, dict.fromkeys(AXES, 0), 0, self.bits)

    def added(self, depth, at, total, bits):
        """`total` with what the loops from `depth` on add to it, step by step."""
        if depth == len(self.loops):
            return clipped(total + self.product(at), bits)
        _, _, _, register, is_parallel = self.loops[depth]
        if register or (is_parallel and depth):
            return clipped(total + self.summed(depth, at), bits)
        return self.iterated(depth, at, total, bits)

    def summed(self, depth, at):
        """The sum of the loops from `depth` on, from 0, in the register of the first of them."""
        if depth == len(self.loops):
            return self.product(at)
        return self.iterated(depth, at, 0, self.loops[depth][3] or self.bits)

    def iterated(self, depth, at, total, bits):
        name, size, step, _, is_parallel = self.loops[depth]
        for place in range(at[name], min(at[name] + size * step, self.extents[name]), step):
            here = {**at, name: place}
            if is_parallel:
                total = clipped(total + self.summed(depth + 1, here), bits)
            else:
                total = self.added(depth + 1, here, total, bits)
        return total


@st.composite
def nests(draw):
    """A nest with some axes twice, sizes, registers, parallel loops and loops over outputs."""
    names = draw(st.permutations([*AXES, *draw(st.lists(st.sampled_from(AXES), max_size=3))]))
    unsized = {name: draw(st.sampled_from([k for k, n in enumerate(names) if n == name]))
               for name in AXES}  # fmt: skip
    texts = []
    for k, name in enumerate(names):
        size = "all" if unsized[name] == k else str(draw(st.integers(1, 4)))
        register = draw(st.sampled_from(["", "", "", ":9", ":11"]))
        parallel = draw(st.sampled_from(["", "", "", ":parallel"]))
        text = name + f":{size}{register}{parallel}"
        texts.append(text if register else text.replace(":all", ""))
    for output in draw(st.lists(st.sampled_from(["n", "oc:4", "oy", "ox:2:parallel"]), max_size=2)):
        texts.insert(draw(st.integers(0, len(texts))), output)
    return ",".join(texts)


def convolved(x, w, text, bits, groups, stride, pad):
    """Sums (N, M, *size) of x (N, C, *size) and w (M, C / groups, *kernel)."""
    kernel = w.shape[2:]
    padded = np.pad(x.astype(int), [(0, 0), (0, 0), *[(pad, pad)] * len(kernel)])
    size = [(n - k) // stride + 1 for n, k in zip(padded.shape[2:], kernel, strict=True)]
    out = np.empty((len(x), len(w), *size), np.int64)
    for n, m, *place in np.ndindex(*out.shape):
        first = m // (len(w) // groups) * w.shape[1]

        def product(at, n=n, m=m, place=place, first=first):
            tap = tuple(at[axis] for axis in AXES[4 - len(kernel) :])
            where = tuple(p * stride + t for p, t in zip(place, tap, strict=True))
            return int(padded[(n, first + at["ic"], *where)]) * int(w[(m, at["ic"], *tap)])

        out[(n, m, *place)] = Loops(text, extents(w.shape[1], kernel), bits, product).total()
    return out


def extents(channels, kernel):
    return dict(zip(AXES, (channels, *(1,) * (3 - len(kernel)), *kernel), strict=True))


def narrow_node(op, x, w, accumulator, **attributes):
    listed = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    listed = f"<{listed}>" if listed else ""
    proto = model(
        f"(int8{list(x.shape)} x) => (float y) {{ xd = DequantizeLinear (x, s, z)"
        f" wd = DequantizeLinear (w, s, z) y = {op} {listed} (xd, wd) }}",
        w=w, s=np.float32(1), z=np.int8(0),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return narrowed(proto, parse_policy(accumulator), x)


@examples(40)
@given(nests(), st.integers(1, 3), st.sampled_from([1, 2, 3]), st.integers(8, 16), st.data())
def test_convolutions_are_summed_as_loops_do(text, rank, groups, bits, data):
    """In 1 to 3 dimensions, in groups, by channel too."""
    channels, maps = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    stride, pad = data.draw(st.integers(1, 2)), int(rank < 3)
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = random.integers(-9, 50, (1, groups * channels, *kernel[:-1], kernel[-1] + 1), np.int8)
    w = random.integers(-50, 50, (groups * maps, channels, *kernel), np.int8)
    options = {"group": groups, "strides": [stride] * rank, "pads": [pad] * 2 * rank}
    output, _ = narrow_node("Conv", x, w, f"{bits}(order=nest({text}))", **options)
    np.testing.assert_array_equal(output, convolved(x, w, text, bits, groups, stride, pad))


@examples(20)
@given(nests(), st.integers(8, 16))
def test_transposed_convolutions_take_positions_from_the_last_to_the_first(text, bits):
    x, w = int8(1, 3, 3, 2), int8(3, 2, 3, 2)
    output, _ = narrow_node("ConvTranspose", x, w, f"{bits}(order=nest({text}))", strides=[2, 1])
    around = np.zeros((1, 3, 5 + 4, 2 + 2), np.int8)  # zeros between the elements, and around them
    around[:, :, 2:7:2, 1:3] = x
    turned = np.flip(w, (2, 3)).swapaxes(0, 1)
    np.testing.assert_array_equal(output, convolved(around, turned, text, bits, 1, 1, 0))


@examples(20)
@given(nests(), st.integers(8, 16), st.integers(1, 20))
def test_matrix_products_have_channels_alone(text, bits, depth):
    a, b = int8(2, depth), int8(depth, 2)
    output, _ = narrow_node("MatMul", a, b, f"{bits}(order=nest({text}))")
    for i, j in np.ndindex(2, 2):
        terms = a[i].astype(int) * b[:, j]
        loops = Loops(text, extents(depth, ()), bits, lambda at, terms=terms: int(terms[at["ic"]]))
        assert output[i, j] == loops.total()


def test_einsum_is_summed_as_the_product_of_matrices_that_it_is():
    a, b, accumulator = int8(3, 21), int8(21, 2), "14(order=nest(ic:3:parallel,ic:all:12,ic:4))"
    proto = model(
        "(int8[3, 21] a) => (float y) { ad = DequantizeLinear (a, s, z)"
        ' bd = DequantizeLinear (b, s, z) y = Einsum <equation = "ik,kj->ij"> (ad, bd) }',
        b=b, s=np.float32(1), z=np.int8(0),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    output, _ = narrowed(proto, parse_policy(accumulator), a)
    np.testing.assert_array_equal(output, narrow_node("MatMul", a, b, accumulator)[0])


@pytest.mark.parametrize(
    ("nest", "spelling"),
    [
        ("nest(ky,kx,ic)", "positionwise"),
        ("nest(ic,ky,kx,ic:3)", "positionwise(3)"),
        ("nest(ic,ky,kx,ic:3,tiles(2:12,2))", "positionwise(3,tiles(2:12,2))"),
        ("nest(ic,ky,kx)", "sequential"),
        ("nest(ic,ky:parallel,kx:parallel)", "channelwise"),
        ("nest(ic,ky,kx,lanes(4))", "lanes(4)"),
    ],
)
def test_other_orders_are_nests(nest, spelling):
    """Outputs, and statistics of all widths: bounds, extremes and overflows."""
    x, w = int8(2, 7, 6, 5), int8(4, 7, 3, 2)
    (mine, own), (other, theirs) = (
        narrow_node("Conv", x, w, f"17(order={order})", pads=[1, 1, 0, 0])
        for order in (nest, spelling)
    )
    np.testing.assert_array_equal(mine, other)
    if spelling == "channelwise":  # which adds a window at once
        return
    (a,), (b,) = own.accumulations().values(), theirs.accumulations().values()
    assert (a.guaranteed, a.guaranteed_inner, a.datatype) == (
        b.guaranteed, b.guaranteed_inner, b.datatype
    )  # fmt: skip
    for width in range(2, 30):
        counts, others = a.tally.overflow(width), b.tally.overflow(width)
        np.testing.assert_array_equal(counts.overflow_outputs, others.overflow_outputs)


@pytest.mark.parametrize("bias", ["first", "last"])
def test_floats_are_added_in_the_order_of_loops(bias):
    """In numpy's float16: two channels at a time, each summed over the kernel by itself."""
    random, terms = np.random.default_rng(5), Terms(5, (2, 3))
    left, right = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 30), (30, 3)))
    start = random.standard_normal(2).astype(np.float16)
    accumulator = float_accumulator(f"fp16(order=nest(ic,ic:2:parallel,kx,ky),bias={bias})")
    sums = sum_products(left, right, start, accumulator, terms=terms)
    for m, p in np.ndindex(2, 3):
        products = (left[m] * right[:, p]).reshape(5, 2, 3)
        total = start[m] if bias == "first" else np.float16(0)
        for c in range(0, 5, 2):
            pair = np.float16(0)
            for channel in products[c : c + 2]:
                lane = np.float16(0)
                for x, y in itertools.product(range(3), range(2)):
                    lane += channel[y, x]
                pair += lane
            total += pair
        assert sums.values[m, p] == (total if bias == "first" else total + start[m])


def test_a_nest_that_leaves_out_terms_is_refused_where_it_is_run():
    x, w = int8(1, 5, 4, 4), int8(2, 5, 3, 3)
    with pytest.raises(UsageError, match=r"ky:2.* runs over 2 of 3 ky"):
        narrow_node("Conv", x, w, "16(order=nest(ky:2,kx,ic))")
    with pytest.raises(UsageError, match="runs over 0 of 3 kx"):
        narrow_node("Conv", x, w, "16(order=nest(ky,ic))")


def test_a_width_that_no_sum_leaves_is_that_of_plain_products():
    a, b = int8(3, 40), int8(40, 3)
    output, _ = narrow_node("MatMul", a, b, "32(order=nest(ic:3,ic,ic:8:24))")
    np.testing.assert_array_equal(output, multiplied(a, b, 32))


def test_names_of_other_tools_have_suggestions():
    for other, mine in (("c", "ic"), ("kh", "ky"), ("IC", "ic")):
        with pytest.raises(UsageError, match=f"Did you mean '{mine}'"):
            named(f"nest(ic,{other})")


def test_a_shorter_innermost_sum_is_added_as_the_longest():
    """100 + 100 is a pair of 8 bits, which saturates, before it goes to the 9 bits of its loop."""
    order = named("nest(kx:2,ic:all:9,kx,tree)")  # the second of two kx has one place of three
    products = np.array([[-25], [-25], [100], [-25], [-25], [100]])
    case = np.ones((1, 6), np.int64), products, None, Terms(2, (3,)), Accumulator(8, order=order)
    assert dots.measure(*case)[1].values == -100 + 127
