"""Attention, Einsum and others in float accumulators: their products are those of numpy's loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.accumulators.float_loops import multiplied
from tests.accumulators.nodes import model, narrowed, plain
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

CONTRIB = "com.microsoft"


def node(
    op: str, inputs: dict[str, np.ndarray], fed: tuple[str, ...], domain: str = "", **options: Any
) -> onnx.ModelProto:
    """A model of one node `y`; inputs that are not `fed` are stored."""
    stored = [numpy_helper.from_array(v, n) for n, v in inputs.items() if n not in fed]
    feeds = [helper.make_tensor_value_info(
        n, helper.np_dtype_to_tensor_dtype(inputs[n].dtype), [None] * inputs[n].ndim) for n in fed
    ]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], "y", domain=domain, **options)], "g", feeds,
        [helper.make_tensor_value_info("y", 1, None)], stored,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(CONTRIB, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11)


def reference(proto: onnx.ModelProto, *feeds: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    named = {v.name: x for v, x in zip(session.get_inputs(), feeds, strict=True)}
    return session.run(None, named)[0]


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(0, 1, shape) * 2.0 ** rng.integers(-4, 2, shape)).astype(np.float32)


def shares(scores: np.ndarray) -> np.ndarray:
    """The softmax of each row, float32."""
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def test_both_products_of_attention_are_those_of_a_loop():
    rng = np.random.default_rng(1)
    q, k, v = drawn(rng, 2, 4, 5, 8), drawn(rng, 2, 2, 7, 8), drawn(rng, 2, 2, 7, 6)
    proto = node("Attention", {"q": q, "k": k, "v": v}, ("q", "k", "v"))
    output, emulation = narrowed(proto, parse_policy("fp16"), q, k, v)
    root = np.float32(8**-0.25)
    keys, values = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)  # heads share keys by twos
    scores = multiplied(q * root, (keys * root).swapaxes(2, 3), np.float16).astype(np.float32)
    want = multiplied(shares(scores), values, np.float16)
    np.testing.assert_array_equal(output, want.astype(np.float32))
    (sums,) = emulation.float_sums
    assert sums.tally.outputs == 2 * 4 * 5 * (7 + 6)
    assert emulation.notes == ()
    wide, _ = narrowed(proto, parse_policy("fp32"), q, k, v)
    want = ReferenceEvaluator(proto).run(None, {"q": q, "k": k, "v": v})[0]
    np.testing.assert_allclose(wide, want, atol=1e-6)


def test_the_fused_attention_of_onnxruntime_has_three_products():
    rng = np.random.default_rng(2)
    x, w, b = drawn(rng, 2, 6, 12), drawn(rng, 12, 24), drawn(rng, 24)
    proto = node("Attention", {"x": x, "w": w, "b": b}, ("x",), CONTRIB, num_heads=2)
    output, emulation = narrowed(proto, parse_policy("fp16"), x)
    projected = multiplied(x, w, np.float16).astype(np.float32) + b
    q, k, v = (heads(part, 2) for part in np.split(projected, 3, axis=-1))
    scores = multiplied(q, k.swapaxes(2, 3), np.float16).astype(np.float32)
    want = multiplied(shares(scores * np.float32(1 / 2)), v, np.float16).astype(np.float32)
    np.testing.assert_array_equal(output, want.transpose(0, 2, 1, 3).reshape(2, 6, 8))
    assert emulation.float_sums[0].tally.outputs == 2 * 6 * (24 + 2 * 6 + 2 * 4)
    wide, _ = narrowed(proto, parse_policy("fp32"), x)
    np.testing.assert_allclose(wide, reference(proto, x), atol=1e-5)


def grouped(rng: np.random.Generator, batch: int) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """GroupQueryAttention of `batch` prompts of 5 tokens: 4 heads of 16, which share 2 keys."""
    q, k, v = (drawn(rng, batch, 5, width * 16) for width in (4, 2, 2))
    none = np.zeros((batch, 2, 0, 16), np.float32)
    inputs = {"q": q, "k": k, "v": v, "pk": none, "pv": none,
              "s": np.full(batch, 4, np.int32), "t": np.array(5, np.int32)}  # fmt: skip
    proto = node("GroupQueryAttention", inputs, tuple(inputs), CONTRIB, num_heads=4, kv_num_heads=2)
    return proto, list(inputs.values())


@pytest.mark.parametrize("operands", [None, "bf16"])
def test_attention_of_language_models_is_close_in_wide_floats_and_not_in_narrow_ones(operands):
    proto, feeds = grouped(np.random.default_rng(3), 3)
    want = reference(proto, *feeds)
    wide, _ = narrowed(proto, parse_policy("fp32", operands=operands), *feeds)
    np.testing.assert_allclose(wide, want, atol=1e-5 if operands is None else 0.05)
    narrow, emulation = narrowed(proto, parse_policy("e5m3", operands=operands), *feeds)
    assert np.abs(narrow - want).max() > 0.01
    (sums,) = emulation.float_sums
    assert sums.tally.outputs == 3 * 4 * 5 * (5 + 16)
    assert sums.tally.operands == operands


@pytest.mark.parametrize(("accumulator", "operands"), [("e5m7(sr=7)", None), ("tc:b200", "nvfp4")])
def test_attention_does_not_depend_on_the_batch(accumulator, operands):
    proto, feeds = grouped(np.random.default_rng(4), 4)
    loaded = loading.from_proto(proto)
    names = [each.name for each in loaded.inputs]
    results = []
    for batch in (4, 2, 1):
        emulation = AccumulatorEmulation(loaded, parse_policy(accumulator, operands=operands))
        interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
        parts = []
        for first in range(0, 4, batch):
            some = [each[first : first + batch] if each.ndim else each for each in feeds]
            parts.append(interpreter.run(None, dict(zip(names, some, strict=True)))[0])
        results.append((np.concatenate(parts), emulation.float_sums))
    for output, sums in results[1:]:
        np.testing.assert_array_equal(output, results[0][0])
        assert sums == results[0][1]


def test_a_scaled_product_of_transposed_matrices_is_that_of_a_loop():
    rng = np.random.default_rng(5)
    a, b = drawn(rng, 2, 9, 4), drawn(rng, 2, 5, 9)
    proto = node("FusedMatMul", {"a": a, "b": b}, ("a",), CONTRIB, transA=1, transB=1, alpha=0.3)
    output, _ = narrowed(proto, parse_policy("fp16"), a)
    sums = multiplied(a.swapaxes(1, 2), b.swapaxes(1, 2), np.float16).astype(np.float32)
    np.testing.assert_array_equal(output, sums * np.float32(0.3))


EQUATIONS = {
    "ij,jk->ik": ((3, 5), (5, 4)), "bij,bjk": ((2, 3, 5), (2, 5, 4)),
    "bthd,bshd->bhts": ((2, 3, 4, 5), (2, 6, 4, 5)), "abc,cbd->da": ((2, 3, 4), (4, 3, 5)),
    "i,i->": ((6,), (6,)), "i,j->ji": ((3,), (4,)), "bi,bi->b": ((3, 5), (3, 5)),
    "nhij, nhjk -> nihk": ((2, 2, 3, 4), (2, 2, 4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_adds_term_after_term(equation):
    rng = np.random.default_rng(6)
    a, b = (drawn(rng, *shape) for shape in EQUATIONS[equation])
    proto = node("Einsum", {"a": a, "b": b}, ("a", "b"), equation=equation)
    wide, _ = narrowed(proto, parse_policy("fp32"), a, b)
    np.testing.assert_allclose(wide, np.einsum(equation, a, b), rtol=1e-4, atol=1e-5)
    output, emulation = narrowed(proto, parse_policy("fp16"), a, b)
    assert output.shape == wide.shape
    assert emulation.float_sums[0].tally.outputs == wide.size
    if equation == "bthd,bshd->bhts":
        left, right = a.transpose(0, 2, 1, 3), b.transpose(0, 2, 3, 1)
        want = multiplied(left, right, np.float16).astype(np.float32)
        np.testing.assert_array_equal(output, want)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("ii,ij->j", ((3, 3), (3, 4))), ("ij,k->k", ((3, 4), (5,))), ("...i,...i->...", ((2, 3),) * 2),
     ("i,ij->", ((3,), (3, 4)))],
)  # fmt: skip
def test_other_equations_stay_wide_and_are_named(equation, shapes):
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    proto = node("Einsum", {"a": a, "b": b}, ("a", "b"), equation=equation)
    with pytest.raises(ModelError, match=r"node 'y' \(Einsum\) cannot be summed in 'fp16': the eq"):
        AccumulatorEmulation(loading.from_proto(proto), parse_policy("fp16"))


MIXED = """(float[1,2,3] x, float[1,2,3] z) => (float[a,b,c] y) {
  s = Add (x, z)
  m = ReduceMean <keepdims = 1> (s)
  h, last = RNN <hidden_size = 4> (s, w, r)
  g, end = GRU <hidden_size = 4> (s, w3, r3)
  f = Squeeze (h, one)
  e = Squeeze (g, one)
  p = Mul (f, e)
  q = MatMul (p, k)
  y = Add (q, m)
}"""


def test_sums_that_stay_wide_are_told_in_one_note_and_nodes_without_products_are_not():
    rng = np.random.default_rng(7)
    weights = {"w": drawn(rng, 1, 4, 3), "r": drawn(rng, 1, 4, 4), "w3": drawn(rng, 1, 12, 3),
               "r3": drawn(rng, 1, 12, 4), "k": drawn(rng, 4, 3), "one": np.array([1])}  # fmt: skip
    proto, x = model(MIXED, **weights), drawn(rng, 1, 2, 3)
    output, emulation = narrowed(proto, parse_policy("fp32"), x, x)
    np.testing.assert_allclose(output, plain(proto, x, x), atol=1e-6)
    assert [each.node for each in emulation.float_sums] == ["MatMul_7"]
    (note,) = emulation.notes
    assert note.startswith("stays wide: RNN_2, GRU_3: float accumulators add products of Attention")


def test_an_entry_for_nodes_that_multiply_nothing_is_refused():
    proto = model("(float[2] x) => (float[2] y) { y = Add (x, x) }")
    with pytest.raises(ModelError, match="adds nothing up") as refused:
        AccumulatorEmulation(loading.from_proto(proto), parse_policy("fp16"))
    assert "Add" not in refused.value.hint.split()
    assert "Attention" in refused.value.hint
