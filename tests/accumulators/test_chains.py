"""Fused chains of quantised graphs, against the same graphs node by node."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.accumulators.nodes import model
from tests.examples import at_night, examples
from tracer.accumulators import chains
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.sum_runner import OverflowCounter, SumRunner
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy, parse_policy
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import TensorRecorder
from tracer.interpreter.operators import Registry
from tracer.interpreter.plan import Planner

MODELS = Path(__file__).parents[2] / "models"
BYTES = st.sampled_from([np.int8, np.uint8])


def compare(loaded, policy, x, threads=None):
    """Asserts that fusing changes neither outputs nor statistics; returns the steps of both."""
    emulation = AccumulatorEmulation(loaded, policy)
    whole = Interpreter(loaded, wrap_kernel=emulation.wrap, threads=threads)
    fused = Interpreter(loaded, wrap_kernel=emulation.wrap, fuse=emulation.fuse, threads=threads)
    results = []
    for interpreter in (whole, fused):
        counters, runners = (
            emulation.new_runners({}, kind) for kind in (OverflowCounter, SumRunner)
        )
        outputs = []
        for runner in (counters, runners):
            with emulation.using(runner):
                outputs += interpreter.run(None, {loaded.inputs[0].name: x})
        results.append((outputs, counters, runners))
    (expected, counters, runners), (outputs, fused_counters, fused_runners) = results
    for one, other in zip(expected, outputs, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    for key in counters:
        assert fused_counters[key].counts == counters[key].counts
        assert fused_runners[key].tally == runners[key].tally
    return whole.steps, fused.steps


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "path", ["lenet/lenet", "resnet_cifar/resnet20", "transformer/transformer"]
)
@pytest.mark.parametrize("bits", at_night([14, 18], but=[14]))
def test_a_shipped_network_keeps_its_bits(path, bits):
    loaded = loading.load(MODELS / f"{path}.int8.onnx")
    channels = loaded.inputs[0].type.tensor_type.shape.dim[1].dim_value
    x = np.random.default_rng(bits).normal(0, 1, (2, channels, 32, 32)).astype(np.float32)
    whole, fused = compare(loaded, parse_policy(f"*={bits}"), x)
    assert len(fused) < len(whole) / 2


@st.composite
def scales(draw, dtype):
    """A scale and a zero point as text, and the weights that they name."""
    info = np.iinfo(dtype)
    return np.float32(draw(st.sampled_from([0.5, 0.07, 1 / 3]))), dtype(
        draw(st.integers(info.min, info.max))
    )


ENDS = {"": "", "Relu": "r = Relu (c)", "Clip": "r = Clip (c, least, most)"}
BIASES = ("", "integers", "floats")


@st.composite
def graphs(draw):
    """A convolution of bytes, an addition, a reshape and a matrix product; and its input."""
    kind, middle, last = (draw(BYTES) for _ in range(3))
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    inputs, maps = groups * draw(st.integers(1, 3)), groups * draw(st.integers(1, 5))
    kernel, stride, pad = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))
    size, count = draw(st.integers(3, 9)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    per_channel = draw(st.booleans())
    (xs, xz), (cs, cz), (ys, yz) = (draw(scales(each)) for each in (kind, middle, last))
    ws = random.uniform(0.1, 0.4, maps).astype(np.float32) if per_channel else np.float32([0.2])
    bias, end = draw(st.sampled_from(BIASES)), draw(st.sampled_from(sorted(ENDS)))
    steps = (xs * np.broadcast_to(ws, maps)).astype(np.float32)
    weights = {
        "xs": xs, "xz": np.array(xz), "cs": cs, "cz": np.array(cz), "ys": ys, "yz": np.array(yz),
        "w": random.integers(-128, 128, (maps, inputs // groups, kernel, kernel)).astype(np.int8),
        "ws": ws if per_channel else ws.reshape(()), "wz": np.zeros(ws.size, np.int8) if per_channel
        else np.int8(0),
        "b": random.integers(-900, 900, maps).astype(np.int32), "bs": steps,
        "f": random.normal(0, 9, maps).astype(np.float32),
        "least": np.float32(-1.3), "most": np.float32(2.7), "flat": np.array([count, -1]),
        "v": random.integers(-128, 128, (maps * draw_size(size, kernel, stride, pad) ** 2, 5))
        .astype(np.int8),
        "vs": np.float32(0.01), "vz": np.int8(0),
        "us": random.normal(0, 1, 5).astype(np.float32),
    }  # fmt: skip
    named = {"": "", "integers": ", bd", "floats": ", f"}[bias]
    after = "r" if end else "c"
    other = draw(st.sampled_from(["x2", "cd"]))
    proto = model(
        f"""({np.dtype(kind)}[n,{inputs},{size},{size}] x) => (float[a,e] u, float[n,m,h,w2] t) {{
          xd = DequantizeLinear (x, xs, xz)
          wd = DequantizeLinear <axis=0> (w, ws, wz)
          bd = DequantizeLinear <axis=0> (b, bs)
          c = Conv <group={groups}, strides=[{stride},{stride}],
                    pads=[{pad},{pad},{pad},{pad}]> (xd, wd{named})
          {ENDS[end]}
          cq = QuantizeLinear ({after}, cs, cz)
          cd = DequantizeLinear (cq, cs, cz)
          a1 = Mul (cd, most)
          aq = QuantizeLinear (a1, ys, yz)
          x2 = DequantizeLinear (aq, ys, yz)
          s = Add (cd, {other})
          sq = QuantizeLinear (s, cs, cz)
          t = DequantizeLinear (sq, cs, cz)
          g = Reshape (t, flat)
          gq = QuantizeLinear (g, cs, cz)
          gd = DequantizeLinear (gq, cs, cz)
          vd = DequantizeLinear (v, vs, vz)
          p = MatMul (gd, vd)
          pq = QuantizeLinear (p, ys, yz)
          pd = DequantizeLinear (pq, ys, yz)
          q = Add (pd, us)
          qq = QuantizeLinear (q, ys, yz)
          u = DequantizeLinear (qq, ys, yz)
        }}""",
        **weights,
    )
    info = np.iinfo(kind)
    x = random.integers(info.min, info.max + 1, (count, inputs, size, size)).astype(kind)
    return proto, x


def draw_size(size, kernel, stride, pad):
    return (size + 2 * pad - kernel) // stride + 1


@pytest.mark.long
@examples(40)
@given(graphs(), st.sampled_from(["8", "12", "15", "18", "32"]), st.integers(1, 2))
def test_random_chains_keep_their_bits(chain, bits, threads):
    proto, x = chain
    loaded = loading.from_proto(proto)
    _, fused = compare(loaded, parse_policy(f"Conv={bits},MatMul={bits}"), x, threads)
    names = [node.op_type for node in fused]
    assert names.count("Conv") == names.count("MatMul") == 1
    assert len(names) <= 10


CONSTANTS = {
    "one": np.float32(0.37), "in an axis": np.float32([1.7]), "in many": np.float32([[[0.4]]]),
    "columns": np.linspace(-2, 2, 5, dtype=np.float32),
    "rows": np.linspace(0.5, 1, 4, dtype=np.float32).reshape(4, 1),
}  # fmt: skip


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", sorted({*chains.OF_ONE} - {"Clip", "Swish"}))  # opset 20
@settings(max_examples=4, deadline=None)
@given(
    *(st.sampled_from(sorted(CONSTANTS)) for _ in range(2)),
    *(scales(kind) for kind in (np.uint8, np.int8, np.uint8)),
    st.sampled_from([(4,), (3, 4), (700, 4)]),
    st.integers(0, 2**32),
)
def test_functions_of_a_byte_keep_their_bits(name, first, second, one, two, three, shape, seed):
    """They are as many as a vector has lanes, fewer, and enough for a compiled kernel."""
    random = np.random.default_rng(seed)
    weights = {
        **dict(zip(("xs", "xz", "cs", "cz", "ys", "yz"), (*one, *two, *three), strict=True)),
        "v": random.integers(-128, 128, (3, 5)).astype(np.int8), "vs": np.float32(0.02),
        "vz": np.int8(0), "a": CONSTANTS[first], "b": CONSTANTS[second],
    }  # fmt: skip
    axes = ",".join("nm"[: len(shape)])
    proto = model(
        f"""(uint8[{axes},k] x) => (float[u] t) {{
          xd = DequantizeLinear (x, xs, xz)
          vd = DequantizeLinear (v, vs, vz)
          p = MatMul (xd, vd)
          pq = QuantizeLinear (p, cs, cz)
          pd = DequantizeLinear (pq, cs, cz)
          s = Add (pd, a)
          sq = QuantizeLinear (s, ys, yz)
          sd = DequantizeLinear (sq, ys, yz)
          f = {name} (sd)
          fq = QuantizeLinear (f, cs, cz)
          fd = DequantizeLinear (fq, cs, cz)
          r = Mul (fd, b)
          rq = QuantizeLinear (r, xs, xz)
          t = DequantizeLinear (rq, xs, xz)
        }}""",
        **{key: np.asarray(value) for key, value in weights.items()},
    )
    x = random.integers(0, 256, (*shape, 3)).astype(np.uint8)
    _, fused = compare(loading.from_proto(proto), parse_policy("MatMul=12"), x)
    assert len(fused) == 3 or "rows" in (first, second)


REDUCTIONS = {
    "AveragePool <kernel_shape=[2,3], strides=[2,1], pads=[1,1,0,1]> (xd)": 4,
    "AveragePool <kernel_shape=[3], dilations=[2], ceil_mode=1> (xd)": 3,
    "AveragePool <kernel_shape=[2,2,2], count_include_pad=1, pads=[0,0,1,0,0,0]> (xd)": 5,
    "GlobalAveragePool (xd)": 4, "ReduceMean <keepdims=0> (xd, axes)": 3, "ReduceSum (xd, axes)": 4,
}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("node", sorted(REDUCTIONS))
@settings(max_examples=6, deadline=None)
@given(BYTES, st.data(), st.sampled_from([5, 8, 11, 24]))
def test_reductions_of_bytes_are_those_of_blocks(node, kind, data, bits):
    """The same sums as those of the first axis of a matrix, which are tested against the oracle."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size = [data.draw(st.integers(5, 9)) for _ in range(REDUCTIONS[node])]
    (xs, xz), (ys, yz) = data.draw(scales(kind)), data.draw(scales(np.uint8))
    axes = data.draw(st.sampled_from([[1], [2], [-1, 0], [1, 2], [0]]))
    proto = model(
        f"""({np.dtype(kind)}[{",".join("abcde"[: len(size)])}] x) => (uint8[u] t) {{
          xd = DequantizeLinear (x, xs, xz)
          p = {node}
          t = QuantizeLinear (p, ys, yz)
        }}""",
        xs=np.asarray(xs), xz=np.asarray(xz), ys=np.asarray(ys), yz=np.asarray(yz),
        axes=np.array(axes),
    )  # fmt: skip
    loaded, info = loading.from_proto(proto), np.iinfo(kind)
    x = random.integers(info.min, info.max + 1, size).astype(kind)
    emulation = AccumulatorEmulation(loaded, parse_policy(str(bits)))
    results = []
    for gathers in (True, False):
        runners = emulation.new_runners({})
        with pytest.MonkeyPatch.context() as patch, emulation.using(runners):
            if not gathers:
                patch.setattr(SumRunner, "sum_gathered", lambda *_: False)
            fuse = emulation.fuse if gathers else None
            interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap, fuse=fuse)
            results.append((interpreter.run(None, {"x": x})[0], emulation.accumulations(runners)))
    (output, sums), (expected, others) = results
    np.testing.assert_array_equal(output, expected)
    for key, each in sums.items():
        assert each.tally == others[key].tally
        assert each.guaranteed == others[key].guaranteed


@pytest.mark.parametrize(
    "accumulator",
    at_night(
        [
            Accumulator(14, order=named("chunked(16)")),
            Accumulator(14, "wrap"),
            Accumulator(14, bias="last"),
            Accumulator(14, zero_points="after"),
        ],
        but=[Accumulator(14, zero_points="after")],
    ),
)
def test_sums_without_a_tile_keep_their_bits(accumulator):
    loaded = loading.load(MODELS / "lenet/lenet.int8.onnx")
    x = np.random.default_rng(1).normal(0, 1, (2, 3, 32, 32)).astype(np.float32)
    compare(loaded, Policy.of(accumulator), x)


def test_constants_are_kept_once():
    loaded = loading.load(MODELS / "lenet/lenet.int8.onnx")
    plan = Planner(loaded, Registry(), None).plan()
    _, constants = AccumulatorEmulation(loaded, parse_policy("*=16")).fuse(plan)
    computed = {step.task.writes[0]: step for step in plan.steps}
    assert constants
    for name, value in constants.items():
        inputs = [plan.template[slot] for slot in computed[name].reads]
        assert computed[name].kernel(inputs, {})[0] is value


def test_observers_see_every_node():
    loaded = loading.load(MODELS / "lenet/lenet.int8.onnx")
    emulation = AccumulatorEmulation(loaded, parse_policy("*=16"))
    interpreter = Interpreter(loaded, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
    recorder = TensorRecorder()
    x = np.zeros((1, 3, 32, 32), np.float32)
    interpreter.with_observers(recorder).run(None, {loaded.inputs[0].name: x})
    assert set(recorder.tensors) == {name for node in loaded.nodes for name in node.outputs}
