"""Certificates: what they cover, when they are refused, and that they notice any change."""

import json

import ml_dtypes
import numpy as np
import onnx
import pytest
from msgspec import structs
from onnx import numpy_helper

from tracer import __version__
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.operand_format import formats
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.certificates import Certificate, DataHash, certificate
from tracer.errors import InputError, ThresholdError, UsageError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

FEEDS = [{"x": np.array([[x, 100, 100]], np.uint8)} for x in (100, 110)]


def model(weights=(1, 1, -1)):
    proto = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]>'
        " g (uint8[1, 3] x) => (int32[1, 1] y) { y = MatMulInteger(x, w) }"
    )
    column = np.array(weights, np.int8)[:, None]
    proto.graph.initializer.append(numpy_helper.from_array(column, "w"))
    return loading.from_proto(proto)


def run(accumulator, feeds=FEEDS):
    """The model, the hash of `feeds`, the statistics of running it on them, and the policy."""
    loaded, data, policy = model(), DataHash(), Policy.of(accumulator)
    emulation = AccumulatorEmulation(loaded, policy)
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap)
    for each in feeds:
        data.add(each)
        interpreter.run(None, each)
    return loaded, data, {k: a.tally for k, a in emulation.accumulations().items()}, policy


def hashed(*feeds):
    data = DataHash()
    for each in feeds:
        data.add(each)
    return data.sha256


def test_it_says_what_was_seen():
    loaded, data, tallies, policy = run(Accumulator(9))
    proof = certificate(loaded, data, tallies, policy)
    (node,) = proof.nodes.values()
    assert (proof.inputs, proof.tool) == (2, f"tracer {__version__}")
    assert (node.outputs, node.bits_observed, node.accumulator["bits"]) == (2, 9, 9)
    proof.check(loaded, data, tallies, policy)


ATTENTION = """<ir_version: 9, opset_import: ["": 20, "com.microsoft": 1]>
g (uint8[1,2,8] q, uint8[1,3] x) => (float[1,2,4] y, int32[1,1] z) {
  y = com.microsoft.QAttention <num_heads = 1> (q, v, b, s, s)  z = MatMulInteger (x, w) }"""


def test_a_node_whose_products_are_partly_wide_is_left_out():
    proto = onnx.parser.parse_model(ATTENTION)
    stored = {"v": np.ones((8, 12), np.int8), "b": np.zeros(12, np.float32),
              "s": np.float32(0.5), "w": np.ones((3, 1), np.int8)}  # fmt: skip
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in stored.items())
    loaded, data, policy = loading.from_proto(proto), DataHash(), Policy.of(Accumulator(20))
    emulation = AccumulatorEmulation(loaded, policy)
    feeds = {"q": np.ones((1, 2, 8), np.uint8), **FEEDS[0]}
    data.add(feeds)
    Interpreter(loaded, wrap_kernel=emulation.wrap).run(None, feeds)
    tallies = {k: a.tally for k, a in emulation.accumulations().items()}
    assert list(tallies) == ["QAttention_0", "MatMulInteger_1"]
    proof = certificate(loaded, data, tallies, policy)
    assert (list(proof.nodes), proof.left_out) == (["MatMulInteger_1"], ("QAttention_0",))
    proof.check(loaded, data, tallies, policy)
    with pytest.raises(UsageError, match="nothing was summed"):
        certificate(loaded, data, {"QAttention_0": tallies["QAttention_0"]}, policy)


def test_it_survives_json():
    proof = certificate(*run(Accumulator(9, order=named("chunked(2)"), product_bits=8)))
    text = proof.to_json()
    assert Certificate.from_json(text) == proof
    (node,) = json.loads(text)["nodes"].values()
    assert node["accumulator"] == {
        "bits": 9, "overflow": "saturate", "order": "chunked(2)", "product_bits": 8,
        "bias": "first", "convention": "twos-complement", "zero_points": "before",
    }  # fmt: skip


def test_an_overflow_is_refused_though_the_result_fits():
    with pytest.raises(ThresholdError, match=r"'MatMulInteger_0' overflows 8 bits in 2 of 2") as e:
        certificate(*run(Accumulator(8)))
    assert "9 bits hold" in str(e.value)


def test_products_that_do_not_fit_are_refused():
    for accumulator in (Accumulator(9, product_bits=6), Accumulator(9, order="tiles(1:9:>>4)")):
        with pytest.raises(ThresholdError, match=r"a width or a shift .* changed 2 outputs"):
            certificate(*run(accumulator))


def test_nothing_is_not_certified():
    with pytest.raises(UsageError, match="nothing was summed"):
        certificate(model(), DataHash(), {}, Policy(()))
    with pytest.raises(UsageError, match="nothing was summed"):
        certificate(*run(Accumulator(9), []))


def test_another_model_or_other_inputs_are_noticed():
    loaded, data, tallies, policy = run(Accumulator(9))
    proof = certificate(loaded, data, tallies, policy)
    with pytest.raises(ThresholdError, match="another model"):
        proof.check(model((1, 1, -2)), data, tallies, policy)
    for feeds in (FEEDS[:1], FEEDS[::-1], [*FEEDS, FEEDS[0]]):
        other = DataHash()
        for each in feeds:
            other.add(each)
        with pytest.raises(ThresholdError, match="other inputs"):
            proof.check(loaded, other, tallies, policy)


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'{"model_sha256": 1}', b"\xff", b"{\x80}"])
def test_what_is_no_certificate_is_refused(text):
    with pytest.raises(InputError, match="not a certificate"):
        Certificate.from_json(text)


def test_every_difference_of_inputs_counts():
    zeros = np.zeros(4, np.int8)
    different = [
        [{"x": zeros}],
        [{"y": zeros}],
        [{"x": zeros.reshape(2, 2)}],
        [{"x": zeros.view(np.uint8)}],
        [{"x": zeros.astype(ml_dtypes.int4)}],
        [{"x": zeros.view(ml_dtypes.bfloat16)}],
        [{"x": np.array([0, 0, 0, 1], np.int8)}],
        [{"x": zeros, "y": zeros}],
        [{"x": zeros}, {"y": zeros}],
        [{"x": [zeros]}],
        [{"x": [zeros, zeros]}],
        [{"x": None}],
        [{"x": np.array(["a", "b"], object)}],
        [{"x": np.array(["a\nb", ""], object)}],
        [{"x": np.zeros((0, 4), np.int8)}],
        [],
    ]
    assert len({hashed(*feeds) for feeds in different}) == len(different)


def test_the_same_inputs_have_the_same_hash_however_they_are_stored():
    numbers = np.arange(12, dtype=np.int32).reshape(3, 4)
    strided = np.repeat(numbers, 2, axis=1)[:, ::2]
    alike = ({"a": numbers, "b": numbers}, {"b": strided, "a": np.asfortranarray(numbers)},
             {"a": numbers.astype(">i4"), "b": numbers})  # fmt: skip
    assert len({hashed(feeds) for feeds in alike}) == 1
    texts = [np.array([kind("a")], object) for kind in (str, np.str_)]
    assert hashed({"x": texts[0]}) == hashed({"x": texts[1]})


def test_other_accumulators_are_noticed():
    loaded, data, tallies, policy = run(Accumulator(9))
    proof = certificate(loaded, data, tallies, policy)
    for other in (Accumulator(10), Accumulator(9, overflow="wrap"), Accumulator(9, bias="last")):
        with pytest.raises(ThresholdError, match="another policy"):
            proof.check(*run(other))
    fixed = Policy.of(Accumulator(9), formats("8:5"))
    with pytest.raises(ThresholdError, match="another policy"):
        proof.check(loaded, data, tallies, fixed)


def test_a_policy_comes_back_by_the_keys_of_nodes_alone():
    loaded, data, tallies, policy = run(Accumulator(9, order=named("chunked(2)")))
    again = Certificate.from_json(certificate(loaded, data, tallies, policy).to_json()).policy()
    assert again.assign(loaded.nodes) == policy.assign(loaded.nodes)
    (node,) = loaded.nodes
    alike = structs.replace(node, key=f"{node.key}_1", op_type=node.key)
    assert list(again.assign([node, alike])) == [node.key]
