"""Every rule with a model of which it is true, and one of which it is not; times are given."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

import tracer
from tests.graphs import parse, residual
from tracer.analyzers.advice import MOST, advise
from tracer.records.environment import Peak, Peaks

PEAKS = Peaks(1, Peak(100e9, "matmul"), Peak(20e9, "triad"), Peak(250e9, "int8 matmul"))

CONV_RELU = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,16,16] x) => (float[1,3,16,16] y) {
  c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w)
  y = Relu (c)
}
"""
CONV_NORM_RELU = CONV_RELU.replace(
    "y = Relu (c)", "b = BatchNormalization (c, one, one, one, one)  y = Relu (b)"
)
SHARED = CONV_RELU.replace("=> (float", "=> (float[1,3,16,16] c, float")
MATMUL_RELU = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4,3] x) => (float[4,3] y) { m = MatMul (x, w)  y = Relu (m) }
"""
CHAIN = (
    '<ir_version: 8, opset_import: ["": 17]> g (float[8] x) => (float[8] t20) {'
    + "".join(f"t{i + 1} = {('Sin', 'Cos')[i % 2]} ({f't{i}' if i else 'x'})\n" for i in range(20))
    + "}"
)
CASTS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[64] x) => (float[64] y) { h = Cast <to = 10> (x)  s = Sin (x)  y = Cast <to = 1> (h) }
"""


def conv(text, **more):
    one = np.ones(3, np.float32)
    proto = parse(text, w=np.ones((3, 3, 3, 3), np.float32))
    if "one" in text:
        proto = parse(text, w=np.ones((3, 3, 3, 3), np.float32), one=one)
    for node in proto.graph.node:
        node.name = node.output[0]
    return tracer.profile(proto, runs=2, warmup=0, threads=1, **more)


def told(trace, us, peaks=PEAKS, **columns):
    """What is advised if every timed row took `us` µs, or as told by node, all of it sure.

    A run takes no longer than its rows.
    """
    nodes = trace.nodes.copy()
    timed = nodes["time_us"].notna()
    times = nodes["node"].map(us) if isinstance(us, dict) else float(us)
    for column in ("time_us", "time_us_raw", "time_us_ci95_low", "time_us_ci95_high"):
        nodes[column] = nodes[column].mask(timed, times)
    nodes["time_share"] = nodes["time_us"] / nodes["time_us"].sum()
    for column, value in columns.items():
        filled = nodes["node"].map(value) if isinstance(value, dict) else value
        nodes[column] = nodes[column].mask(timed & nodes["index"].notna(), filled)
    trace = replace(trace, environment=replace(trace.environment, peaks=peaks))
    trace = with_wall(trace, float(nodes["time_us"].sum()))
    return {each.rule: each for each in advise(trace, trace.runs[0], nodes)}


def with_wall(trace, wall_us):
    """The same trace, each run of which took `wall_us` µs."""
    (run,) = trace.runs
    return replace(trace, runs=(replace(run, wall_us=np.full_like(run.wall_us, wall_us)),))


@pytest.mark.nightly
def test_an_activation_with_a_kernel_of_its_own_is_told():
    found = told(conv(CONV_RELU, optimization="none"), 10)["unfused_activation"]
    assert found.nodes == ("y",)
    assert found.time_share == pytest.approx(0.5)
    assert "--optimization all fuses Conv + Relu" in found.text
    assert "unfused_activation" not in told(conv(CONV_RELU, optimization="all"), 10)


def test_what_the_advice_to_fuse_promises_is_what_onnxruntime_does():
    before = conv(CONV_NORM_RELU, optimization="none")
    found = told(before, 10)["unfused_activation"]
    assert "fuses Conv + BatchNormalization + Relu" in found.text
    after = conv(CONV_NORM_RELU, optimization="all")
    assert [k.op_type for k in before.runs[0].kernels] == ["Conv", "BatchNormalization", "Relu"]
    assert "Relu" not in [k.op_type for k in after.runs[0].kernels]


@pytest.mark.parametrize(
    ("level", "named"), [("all", "unlisted_weights"), ("none", "unlisted_weights,optimization")]
)
def test_weights_among_the_inputs_are_named_where_they_keep_an_activation_apart(level, named):
    one = np.ones(3, np.float32)
    proto = parse(CONV_NORM_RELU, w=np.ones((3, 3, 3, 3), np.float32), one=one)
    for weight in proto.graph.initializer:
        listed = helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, weight.dims)
        proto.graph.input.append(listed)
    trace = tracer.profile(proto, runs=2, warmup=0, threads=1, optimization=level)
    assert [k.op_type for k in trace.runs[0].kernels] == ["Conv", "BatchNormalization", "Relu"]
    found = told(trace, 10)["unfused_activation"]
    assert "listed among the inputs keep Conv + BatchNormalization + Relu apart" in found.text
    assert f"tracer tune with --try {named} measures it" in found.text


@pytest.mark.parametrize("level", ["none", "all"])
def test_an_activation_that_cannot_be_fused_is_not_advised_upon(level):
    proto = parse(MATMUL_RELU, w=np.ones((3, 3), np.float32))
    trace = tracer.profile(proto, runs=2, warmup=0, threads=1, optimization=level)
    assert "unfused_activation" not in told(trace, 10)


def test_a_result_between_keeps_them_apart_and_that_is_said():
    found = told(conv(SHARED, optimization="none"), 10)["unfused_activation"]
    assert "unless a tensor in between is an output" in found.text
    found = told(conv(SHARED, optimization="extended"), 10)["unfused_activation"]
    assert "onnxruntime did not fuse Conv + Relu here" in found.text


def test_reorders_are_told_with_what_they_are_between():
    trace = tracer.profile(residual(), runs=2, warmup=0, threads=1)
    reorders = [k for k in trace.runs[0].kernels if k.op_type.startswith("Reorder")]
    found = told(trace, 10).get("layout_reorders")
    assert (found is not None) is bool(reorders)  # the blocked layout is for some processors only
    if found:
        assert "1 reorder takes" in found.text and len(reorders) == 1
        assert "between" in found.text
    plain = tracer.profile(residual(), runs=2, warmup=0, threads=1, optimization="none")
    assert "layout_reorders" not in told(plain, 10)


@pytest.fixture(scope="module")
def chain():
    return tracer.profile(parse(CHAIN), runs=2, warmup=0, threads=1, optimization="none")


def test_many_short_kernels_are_told_where_their_work_is_little(chain):
    found = told(chain, 3, roof_fraction=0.01)["small_kernels"]
    assert found.text.startswith(
        "small kernels: 20 of 20 calls take less than 10 µs each, "
        "far more than their work needs, and 100%"
    )
    assert found.figures["roof_fraction"] == pytest.approx(0.01)
    assert "small_kernels" not in told(chain, 30, roof_fraction=0.01)
    assert "small_kernels" not in told(chain, 3, roof_fraction=0.8)
    few = conv(CONV_RELU, optimization="none")
    assert "small_kernels" not in told(few, 3, roof_fraction=0.01)


def test_calls_that_are_too_short_for_a_time_are_short_calls(chain):
    named = chain.nodes["node"].tolist()
    below = dict.fromkeys(named[5:], 0.0) | dict.fromkeys(named[:5], 3.0)
    each = {"time_us_ci95_low": below, "time_us_ci95_high": 4.0, "roof_fraction": 0.01}
    found = told(chain, 3, **each)["small_kernels"]
    assert found.text.startswith(
        "small kernels: 20 of 20 calls take less than 10 µs each, "
        "far more than their work needs, and 100%"
    )
    assert found.time_share == pytest.approx(1)
    least = 5 * 0.01 * 3 + 15 * 64 / 20e9 * 1e6  # Sin of 8 floats reads and writes 64 bytes
    assert found.figures["roof_fraction"] == pytest.approx(least / 60)


def test_a_kernel_near_the_memory_roof_is_memory_bound(chain):
    rates = {"gbytes_per_s": 15.0, "gflops_per_s": 3.0, "bound": "memory", "bytes_read": 64 << 20}
    found = told(chain, 50, roof_fraction=0.75, **rates)["memory_bound"]
    assert "15 of the 20 GB/s" in found.text
    assert "0.2 flop/B" in found.text
    assert "memory_bound" not in told(chain, 50, roof_fraction=0.2, **rates)
    assert "memory_bound" not in told(chain, 50, roof_fraction=2.5, **rates)  # in a cache
    assert "memory_bound" not in told(chain, 50, roof_fraction=0.75, bound="compute")


@pytest.mark.parametrize(("cache", "nbytes"), [(32 << 20, 16 << 20), (0, 32 << 10)])
def test_a_slow_function_on_what_a_cache_holds_is_not_memory_bound(chain, cache, nbytes):
    """Sigmoid of 64 kB moved 26.8 GB/s of 29.9: exp took the time, and the data were cached."""
    rates = {"gbytes_per_s": 15.0, "gflops_per_s": 3.0, "bound": "memory", "roof_fraction": 0.9}
    peaks = replace(PEAKS, cache=cache)
    assert "memory_bound" not in told(chain, 50, peaks, bytes_read=nbytes, **rates)
    assert "memory_bound" in told(chain, 50, peaks, bytes_read=64 << 20, **rates)


def test_most_of_the_time_near_the_arithmetic_roof_is_compute_bound(chain):
    rates = {"gflops_per_s": 80.0, "bound": "compute"}
    found = told(chain, 50, roof_fraction=0.8, **rates)["compute_bound"]
    assert "at 80% of the peak (80 GFLOP/s)" in found.text
    assert "2.5 times as high" in found.text
    without = replace(PEAKS, int8=None)
    found = told(chain, 50, without, roof_fraction=0.8, **rates)["compute_bound"]
    assert "8-bit" not in found.text
    assert "compute_bound" not in told(chain, 50, roof_fraction=0.3, **rates)
    assert "compute_bound" not in told(chain, 50, roof_fraction=2.4, **rates)
    busy = replace(PEAKS, cpu_share=0.5)
    assert "compute_bound" not in told(chain, 50, busy, roof_fraction=0.8, **rates)


def test_a_long_kernel_far_from_the_roof_is_told(chain):
    keys = chain.nodes["node"].tolist()
    times = dict.fromkeys(keys, 5.0) | {keys[3]: 500.0}
    rates = {"gflops_per_s": 2.0, "gbytes_per_s": 1.0, "bound": "compute"}
    found = told(chain, times, roof_fraction=0.02, **rates)["slow_kernel"]
    assert found.nodes == (keys[3],)
    assert "2.0% of the compute roof" in found.text
    assert "slow_kernel" not in told(chain, times, roof_fraction=0.5, **rates)
    assert "slow_kernel" not in told(chain, 500, roof_fraction=0.02, **rates)  # a twentieth each


def test_a_name_of_hundreds_of_characters_is_cut_where_it_stands_in_a_sentence():
    proto = parse(CHAIN)
    proto.graph.node[3].name = name = "model/batch_normalization/FusedBatchNormV3;" * 8
    trace = tracer.profile(proto, runs=2, warmup=0, threads=1)
    times = dict.fromkeys(trace.nodes["node"], 5.0) | {name: 500.0}
    found = told(trace, times, roof_fraction=0.02, gflops_per_s=2.0, bound="compute")["slow_kernel"]
    assert found.nodes == (name,)
    assert "model/batch_norm" in found.text
    assert f"({len(name)} characters)" in found.text
    assert name not in found.text


def test_conversions_are_told_where_they_take_time():
    trace = tracer.profile(parse(CASTS), runs=2, warmup=0, threads=1, optimization="none")
    found = told(trace, 10)["conversions"]
    assert found.time_share == pytest.approx(2 / 3)
    sine = trace.nodes.loc[trace.nodes["op_type"] == "Sin", "node"].item()
    cheap = dict.fromkeys(trace.nodes["node"], 0.1) | {sine: 100.0}
    assert "conversions" not in told(trace, cheap)


def test_conversions_too_short_for_a_time_are_in_the_sum_and_among_the_names():
    trace = tracer.profile(parse(CASTS), runs=2, warmup=0, threads=1, optimization="none")
    first, second = trace.nodes.loc[trace.nodes["op_type"] == "Cast", "node"]
    sure = dict.fromkeys(trace.nodes["node"], 9.0) | {second: 0.0}  # the time is a bound
    found = told(trace, 10, time_us_ci95_low=sure)["conversions"]
    assert found.nodes == (first, second)
    assert found.time_share == pytest.approx(2 / 3)
    assert f"{first}, {second} take 66.7% of the time (20 µs)" in found.text


def test_rows_whose_sum_may_be_nothing_support_no_advice():
    trace = tracer.profile(parse(CASTS), runs=2, warmup=0, threads=1, optimization="none")
    first, second = trace.nodes.loc[trace.nodes["op_type"] == "Cast", "node"]
    sure = dict.fromkeys(trace.nodes["node"], 9.0) | {first: 0.0, second: 0.0}
    for high, is_told in ((24.0, True), (25.0, False)):  # 14 and 15 beyond 10, of each: 20 or 21
        bounds = dict.fromkeys(trace.nodes["node"], 11.0) | {first: high, second: high}
        found = told(trace, 10, time_us_ci95_low=sure, time_us_ci95_high=bounds)
        assert ("conversions" in found) is is_told


def test_a_time_that_is_not_sure_proves_nothing(chain):
    rates = {"gflops_per_s": 80.0, "bound": "compute", "roof_fraction": 0.9}
    assert "compute_bound" in told(chain, 50, **rates)
    assert "compute_bound" not in told(chain, 50, **rates, time_us_ci95_low=10.0)
    assert "compute_bound" not in told(chain, 50, **rates, time_us_raw=500.0)


def test_lines_are_few_and_the_largest_share_is_first(chain):
    found = list(told(chain, 3, roof_fraction=0.01).values())
    assert len(found) <= MOST
    shares = [each.time_share for each in found]
    assert shares == sorted(shares, reverse=True)


def test_of_what_did_not_run_in_onnxruntime_nothing_is_said():
    trace = tracer.interpret(residual())
    assert advise(trace, trace.runs[0], trace.nodes) == ()
    counted = tracer.count(residual())
    assert advise(counted, None, counted.nodes) == ()
