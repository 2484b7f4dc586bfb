"""Products are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.examples import examples
from tracer.arithmetic.kernel import Kernel, are_equal, reveal
from tracer.arithmetic.replays import replay_of

SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 130, 257, 300, 700])
FACTORS = st.sampled_from([1.0, 1.0, 0.5, 0.3, -1.7])


def make(op_type, shapes, stored=(), threads=1, domain="", dtype=np.float32, **attributes):
    names = "abcdef"[: len(shapes)]
    node = helper.make_node(op_type, list(names), ["y"], domain=domain, **attributes)
    random = np.random.default_rng(1)
    inputs = {name: (np.dtype(dtype), shape) for name, shape in zip(names, shapes, strict=True)}
    constants = {names[i]: np.asarray(random.standard_normal(shapes[i]), dtype) for i in stored}
    computed = {name: each for name, each in inputs.items() if name not in constants}
    return Kernel(node, computed, constants, {"": 17, "com.microsoft": 1}, threads)


def check(kernel):
    """Returns the rule after outputs of inputs that it was not verified with are equal too."""
    replay = replay_of(kernel.node.domain, kernel.op_type)
    rule = reveal(replay, kernel)
    inputs = kernel.draw(np.random.default_rng(7))
    replayed = replay.replay(kernel, rule.facts, inputs)
    assert are_equal(kernel.run(inputs)[0], replayed[0]).all(), rule.text
    return rule


@pytest.mark.one_in(5)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stored", [(), (1,), (0,)])
@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 24), (24, 16)),
        ((8, 300), (300, 16)),
        ((7, 300), (300, 1)),
        ((30,), (30, 5)),
        ((2, 3, 4, 50), (3, 50, 7)),
        ((3, 257), (257, 300)),
    ],
)
def test_matmul(shapes, stored, threads):
    check(make("MatMul", shapes, stored, threads))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bld,dk->blk", ((2, 17, 512), (512, 33))),
        ("ibnd,jbnd->ijbn", ((12, 2, 4, 16), (14, 2, 4, 16))),
        ("ibnd,hnd->ibh", ((12, 2, 4, 16), (64, 4, 16))),
        ("bnhd,hd->bnh", ((2, 9, 4, 16), (4, 16))),
        ("i,j->ij", ((12,), (16,))),
    ],
)
def test_einsum_is_a_product_of_matrices(equation, shapes):
    for stored in ((), (1,)):
        assert (
            "tracer interpret" not in check(make("Einsum", shapes, stored, equation=equation)).text
        )


def test_the_part_of_another_thread_has_another_order():
    rule = check(make("MatMul", [(3, 700), (700, 33)], threads=2))
    assert rule.text == (
        "rows 0 to 2 and columns 0 to 31 fused multiply-add, in blocks of 512, then the blocks; "
        "rows 0 to 2 and columns 32 fused multiply-add, one after the other"
    )


@st.composite
def products(draw):
    rows, terms, columns = draw(SIZES), draw(SIZES), draw(SIZES)
    threads, stored = draw(st.sampled_from([1, 2])), draw(st.sampled_from([(), (1,)]))
    dtype = draw(st.sampled_from([np.float32, np.float32, np.float64]))
    across, over = draw(st.booleans()), draw(st.booleans())
    left = (terms, rows) if across else (rows, terms)
    right = (columns, terms) if over else (terms, columns)
    form = draw(st.sampled_from(["MatMul", "Gemm", "FusedMatMul", "FusedGemm"]))
    if form == "MatMul":
        return make(form, [(rows, terms), (terms, columns)], stored, threads, dtype=dtype)
    attributes = {"transA": int(across), "transB": int(over), "alpha": draw(FACTORS)}
    if form == "FusedMatMul":
        batch = draw(st.sampled_from([(), (2,), (2, 3)]))
        shapes = [(*batch, *left), (*batch[1:], *right)]
        return make(form, shapes, stored, threads, "com.microsoft", **attributes)
    bias = draw(st.sampled_from([None, (), (1,), (columns,), (rows, 1), (rows, columns)]))
    shapes = [left, right] if bias is None else [left, right, bias]
    attributes["beta"] = draw(FACTORS)
    if form == "Gemm":
        return make(form, shapes, stored, threads, dtype=dtype, **attributes)
    attributes |= {"activation": draw(st.sampled_from(["Relu", "LeakyRelu"]))}
    if attributes["activation"] == "LeakyRelu":
        attributes["activation_alpha"] = 0.1
    return make(form, shapes, stored, threads, "com.microsoft", **attributes)


@given(products())
@examples(60)
def test_products_of_any_shape(kernel):
    check(kernel)


@pytest.mark.parametrize("terms", [1, 2])
def test_of_one_element_with_a_bias_the_sign_of_zero_is_known(terms):
    """onnxruntime begins with the first product: -0 and -0 are -0."""
    check(make("Gemm", [(1, terms), (terms, 1), ()]))


@pytest.mark.nightly
@given(products())
@settings(max_examples=200, deadline=None)
def test_many_products_of_any_shape(kernel):
    check(kernel)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("bits", "block"), [(4, 32), (4, 128), (8, 32), (2, 16)])
def test_products_with_packed_weights(rows, bits, block, threads):
    random, terms, columns = np.random.default_rng(0), 256, 37
    blocks = terms // block
    constants = {
        "codes": random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "scales": random.uniform(0.01, 1, columns * blocks).astype(np.float32),
        "zeros": random.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8),
        "bias": random.standard_normal(columns).astype(np.float32),
    }
    node = helper.make_node(
        "MatMulNBits", ["a", "codes", "scales", "zeros", "", "bias"], ["y"],
        domain="com.microsoft", K=terms, N=columns, bits=bits, block_size=block,
    )  # fmt: skip
    inputs = {"a": (np.dtype(np.float32), (rows, terms))}
    check(Kernel(node, inputs, constants, {"com.microsoft": 1}, threads))


@pytest.mark.parametrize(
    ("terms", "factor", "told"),
    [
        (20, 1.0, "one after the other, the bias last"),
        (2000, 1.0, "then the blocks, the bias after the first"),
        (20, 0.5, "one after the other, times 0.5, the bias first"),
    ],
)
def test_the_place_of_a_bias_and_a_factor_is_told(terms, factor, told):
    rule = check(make("Gemm", [(8, terms), (terms, 16), (16,)], alpha=factor))
    assert rule.text.endswith(told)
