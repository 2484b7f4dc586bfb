"""Rules whose advice `tracer tune` checks: models where they apply and do not; times are told."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

import tracer
from tests.analyzers.advice.test_rules import CHAIN, PEAKS, conv, told, with_wall
from tests.graphs import integers, parse, residual
from tests.tracer.tuning.test_changes import COMPUTED_SHAPE
from tracer.analyzers.advice import Evidence, advise
from tracer.graph.tensor_type import TensorType
from tracer.records.environment import Peak
from tracer.tuning import changes

PRODUCT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,64] y) { m = MatMul (x, w)  y = Relu (m) }
"""
ATTENTION = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4,8] q, float[8,4] k, float[4,8] v) => (float[4,8] y) {
  s = MatMul (q, k)
  half = Constant <value_float = 0.5> ()
  scaled = Mul (s, half)
  p = Softmax <axis = -1> (scaled)
  y = MatMul (p, v)
}
"""
OUTPUT_LAYER = ATTENTION.replace("s = MatMul (q, k)", "s = MatMul (q, k)  e = Exp (s)").replace(
    "Mul (s, half)", "Mul (e, half)"
)

CLASSIFIER = ATTENTION.replace("float[4,8] y", "float[4,4] p").replace("y = MatMul (p, v)", "")


def profiled(proto, **settings):
    return tracer.profile(proto, **{"runs": 2, "warmup": 0, "threads": 1} | settings)


def product():
    return parse(PRODUCT, w=np.ones((64, 64), np.float32))


def on(trace, **machine):
    """The same trace of another machine."""
    return replace(trace, environment=replace(trace.environment, **machine))


def test_long_products_on_few_threads_leave_cores_idle():
    trace = on(profiled(product()), cpu_count=4)
    found = told(trace, 100)["few_threads"]
    assert "takes 50% of the time in calls of 50 µs or more, on 1 of 4 processors" in found.text
    assert found.at_most == 4  # shorter products share threads as well
    assert "few_threads" not in told(trace, 5)
    assert "few_threads" not in told(on(trace, cpu_count=1), 100)


def test_shapes_that_are_computed_are_told():
    found = told(profiled(parse(COMPUTED_SHAPE)), 10)["computed_shapes"]
    assert found.time_share == pytest.approx(0.5)  # Shape and Concat of four kernels
    assert found.tune == ("fixed_dimensions", "folding")
    assert "computed_shapes" not in told(profiled(product()), 10)


def test_shapes_too_short_for_a_time_are_told_by_their_sum():
    trace = profiled(parse(COMPUTED_SHAPE))
    found = told(trace, 10, time_us_ci95_low=0.0)["computed_shapes"]
    assert found.time_share == pytest.approx(0.5)


def test_attention_of_single_operators_is_told():
    found = told(profiled(parse(ATTENTION), optimization="none"), 10)["unfused_attention"]
    assert "1 Softmax after products" in found.text
    assert found.tune == ("fusions",)
    sums = told(profiled(parse(ATTENTION), optimization="none"), 10, time_us_ci95_low=0.0)
    assert sums["unfused_attention"].time_share == pytest.approx(found.time_share)
    for other in (OUTPUT_LAYER, CLASSIFIER):
        apart = profiled(parse(other), optimization="none")
        assert "unfused_attention" not in told(apart, 10)


def quantised_kernels():
    return profiled(onnx.load("models/lenet/lenet.int8.onnx"))


def test_integers_below_half_of_the_peak_of_floats_are_told_with_the_loss():
    trace = quantised_kernels()
    rates = {"gflops_per_s": 5.0}
    found = told(trace, 100, **rates)["slower_quantized"]
    assert "floats are assumed to reach half of their peak here (50 GFLOP/s)" in found.text
    assert found.figures["in_floats_us"] == pytest.approx(found.figures["time_us"] / 10)
    assert "slower_quantized" not in told(trace, 100, gflops_per_s=80.0)
    assert "slower_quantized" not in told(trace, 100, peaks=None, **rates)
    assert "slower_quantized" not in told(conv_in_floats(), 100, **rates)


def conv_in_floats():
    return profiled(residual())


def signed_weights():
    """Products of unsigned by signed bytes."""
    return profiled(integers(), dims={}, batch=2)


AVX2, VNNI = ("avx2",), ("avx2", "avx512_vnni")


def test_unsigned_by_signed_bytes_may_saturate_without_vnni():
    trace = signed_weights()
    found = told(on(trace, cpu_flags=AVX2), 10)["saturating_sums"]
    assert "may saturate at 16 bits. --accumulator x86-maddubs counts them" in found.text
    assert "saturating_sums" in told(on(trace, cpu_flags=(*AVX2, "avx512f", "avx512bw")), 10)
    assert "saturating_sums" not in told(on(trace, cpu_flags=VNNI), 10)
    assert "saturating_sums" not in told(on(profiled(product()), cpu_flags=AVX2), 10)


def test_nodes_that_saturate_in_the_emulation_are_named():
    trace = on(signed_weights(), cpu_flags=AVX2)
    changed = dict.fromkeys(trace.nodes["node"], 0.0)
    last = trace.nodes.loc[trace.nodes["time_us"].notna() & trace.nodes["index"].notna(), "node"]
    changed[last.iloc[-1]] = 2.0
    sums = {"outputs": 10.0, "energy": 1.0, "accumulator": "x86-maddubs"}
    found = told(trace, 10, **sums, outputs_changed=changed)["saturating_sums"]
    assert found.nodes == (last.iloc[-1],)
    assert "2 of 10 outputs differ" in found.text
    assert found.figures == {"outputs_changed": 2}
    assert "saturating_sums" not in told(trace, 10, **sums, outputs_changed=0.0)
    narrow = sums | {"accumulator": "two-level(16,256,32)"}  # says nothing of this processor
    other = told(trace, 10, **narrow, outputs_changed=changed)["saturating_sums"]
    assert "may saturate" in other.text


def test_advice_names_the_command_and_the_room_that_the_roofline_leaves():
    chain = profiled(parse(CHAIN), optimization="none")
    work = {"macs": 100.0, "bound": "compute", "gflops_per_s": 25.0}
    found = told(on(chain, cpu_count=1), 3, roof_fraction=0.25 - 1e-6, **work)["small_kernels"]
    assert found.text.endswith(
        "tracer tune with --try threads,optimization measures it; by the roofline, the whole model "
        "runs at most 4x as fast"
    )
    without = told(chain, 3, peaks=None, roof_fraction=0.2)["small_kernels"]
    assert without.at_most is None and without.text.endswith("measures it")


@pytest.mark.parametrize(("cpus", "at_most"), [(1, 4), (4, 16)])
def test_settings_gain_up_to_the_roof_on_all_processors(cpus, at_most):
    trace = on(profiled(parse(CHAIN), optimization="none"), cpu_count=cpus)
    work = {"macs": 100.0, "bound": "compute", "gflops_per_s": 25.0, "roof_fraction": 0.25}
    assert evidence_of(trace, 3, work).at_most_by_settings() == pytest.approx(at_most)


def test_a_product_in_a_cache_is_limited_by_arithmetic_and_the_rest_may_be_fused():
    trace = on(profiled(parse(CHAIN), optimization="none"), cpu_count=1)
    cached = {"macs": 100.0, "bound": "memory", "gflops_per_s": 20.0, "roof_fraction": 3.0}
    assert evidence_of(trace, 3, cached).at_most_by_settings() == pytest.approx(5)
    elementwise = cached | {"macs": 0.0}
    assert evidence_of(trace, 3, elementwise).at_most_by_settings() is None  # no time is left


def test_the_roof_of_memory_is_none_of_weights_that_a_cache_may_hold():
    trace = on(profiled(parse(CHAIN), optimization="none"), cpu_count=1)
    main = {"macs": 100.0, "bound": "memory", "gflops_per_s": 2.0, "roof_fraction": 0.5}
    assert evidence_of(trace, 3, main).at_most_by_settings() == pytest.approx(50)
    (run,) = trace.runs
    for gibibytes in (100, 10):  # of which the largest cache there is holds 1.125
        weights = TensorType("float32", (gibibytes << 28,))
        large = replace(run.kernels[0], input_types=(weights,))
        heavy = replace(trace, runs=(replace(run, kernels=(large, *run.kernels[1:])),))
        beyond = 1 - 1.125 / gibibytes
        at_most = evidence_of(heavy, 3, main).at_most_by_settings()
        assert at_most == pytest.approx(2 / beyond, rel=1e-6)


@pytest.mark.parametrize("rest", [0.0, 40.0])
def test_no_speed_up_is_beyond_what_is_told_as_most(rest):
    """Rows without a time of their own, and what is beside the nodes, may take no time at all."""
    trace = on(profiled(parse(CHAIN), optimization="none"), cpu_count=1)
    work = {"macs": 100.0, "bound": "compute", "gflops_per_s": 25.0, "roof_fraction": 0.25}
    known = evidence_of(trace, 3, work)
    names = trace.nodes["node"].tolist()
    low = trace.nodes["node"].map(dict.fromkeys(names[:10], 3.0) | dict.fromkeys(names[10:], 0.0))
    evidence = evidence_of(trace, 3, work, rest, time_us_ci95_low=low)
    assert len(known.rows) == 20 and len(evidence.rows) == 10
    assert evidence.at_most_by_settings() == pytest.approx((60 + rest) / (10 * 3 * 0.25))


def evidence_of(trace, us, columns, rest=0.0, **more):
    """The evidence where each row took `us` µs, and a run `rest` beside, by the peaks of `told`."""
    known = {
        "time_us": float(us),
        "time_us_ci95_low": float(us),
        "time_share": 1 / len(trace.nodes),
    }
    nodes = trace.nodes.assign(**known, **columns).assign(**more)
    known = replace(trace.environment, peaks=PEAKS)
    trace = with_wall(replace(trace, environment=known), len(nodes) * us + rest)
    return Evidence.of(trace, trace.runs[0], nodes)


def test_eight_bits_gain_by_fewer_bytes_or_faster_arithmetic():
    chain = profiled(parse(CHAIN), optimization="none")
    rates = {"gflops_per_s": 100.0, "bound": "compute", "roof_fraction": 1.0, "macs": 100.0}
    found = told(chain, 50, **rates)["compute_bound"]
    assert found.tune == ("static_int8",)
    assert found.at_most == pytest.approx(32 / 8)  # the int8 peak is 2.5 times as high
    fast = replace(PEAKS, int8=Peak(800e9, "int8 matmul"))
    assert told(chain, 50, fast, **rates)["compute_bound"].at_most == pytest.approx(8)


@pytest.mark.nightly
def test_what_advice_names_can_be_tried():
    traces = [
        (conv_in_floats(), 100, {"roof_fraction": 0.01, "gflops_per_s": 2.0, "bound": "compute"}),
        (profiled(parse(CHAIN), optimization="none"), 3, {"roof_fraction": 0.01}),
        (profiled(parse(ATTENTION), optimization="none"), 10, {}),
        (on(signed_weights(), cpu_flags=AVX2), 10, {}),
    ]
    named = {
        name
        for trace, us, columns in traces
        for advice in told(trace, us, **columns).values()
        for name in advice.tune
    }
    assert len(named) > 4
    for name in named:
        changes.find(name)


def test_advice_without_a_change_names_no_command():
    trace = conv("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1,3,16,16] x) => (float[1,3,16,16] y) {
      c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w)
      y = Relu (c)
    }
    """)
    for advice in advise(trace, trace.runs[0], trace.nodes):
        assert ("tracer tune" in advice.text) == bool(advice.tune)
