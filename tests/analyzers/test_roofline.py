"""Rates and roofs: the published formula, and kernels of several nodes counted as one."""

from dataclasses import replace

import numpy as np
import onnx.numpy_helper
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.graphs import DATA_DEPENDENT, parse, residual
from tracer import host
from tracer.analyzers import roofline
from tracer.analyzers.cost import cost, typed_model
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.grouping import by_node, grouped
from tracer.analyzers.roofline import TimedRow
from tracer.analyzers.timing import timing
from tracer.analyzers.views import environment, render
from tracer.graph import loading, shape_inference
from tracer.records.environment import Peak, Peaks
from tracer.support import files
from tracer.support.measurements import Load

PEAKS = Peaks(1, Peak(100e9, "matmul"), Peak(20e9, "triad"), Peak(300e9, "int8 matmul"))


def of(time_us, flops, size, arithmetic="float32", peaks=PEAKS, **known):
    """The row of one kernel."""
    rows = [TimedRow("n", ("n",), time_us, arithmetic, **known)]
    work = pd.Series({"n": flops}, dtype="Int64")
    return roofline.roofline(rows, work, {("n",): size}, peaks).loc["n"]


@given(
    time=st.floats(0.2, 1e6),
    flops=st.integers(1, 10**12),
    size=st.integers(1, 10**12),
    peak=st.floats(1e9, 1e13),
    memory=st.floats(1e9, 1e12),
)
def test_the_share_is_that_of_the_attainable_rate_of_williams(time, flops, size, peak, memory):
    peaks = Peaks(1, Peak(peak, ""), Peak(memory, ""))
    found = of(time, flops, size, peaks=peaks)
    attainable = min(peak, flops / size * memory)
    assert found["gflops_per_s"] * 1e9 == pytest.approx(flops / (time * 1e-6))
    assert found["gbytes_per_s"] * 1e9 == pytest.approx(size / (time * 1e-6))
    assert found["roof_fraction"] == pytest.approx(flops / (time * 1e-6) / attainable)
    if flops / size != pytest.approx(peak / memory) and abs(found["roof_fraction"] - 1.05) > 1e-6:
        limits = ("compute", "memory") if found["roof_fraction"] < 1.05 else ("fewer ops", "cache")
        assert found["bound"] == limits[0 if flops / size > peak / memory else 1]


def test_a_copy_is_as_fast_as_memory_allows():
    found = of(10.0, 0, 100_000)
    assert found["gflops_per_s"] == 0
    assert (found["bound"], found["roof_fraction"]) == ("memory", pytest.approx(0.5))


def test_integers_are_compared_with_the_peak_of_integers():
    flops = 1_000_000
    assert of(10.0, flops, 8)["roof_fraction"] == pytest.approx(1.0)
    assert of(10.0, flops, 8, "int8")["roof_fraction"] == pytest.approx(1 / 3)
    without = Peaks(1, PEAKS.float32, PEAKS.memory)
    assert np.isnan(of(10.0, flops, 8, "int8", without)["roof_fraction"])
    assert np.isnan(of(10.0, flops, 8, "float64")["roof_fraction"])


def test_rows_of_a_card_have_the_peak_of_their_type_and_others_have_none():
    flops, products = 1_000_000, {"tf32": Peak(400e9, "a"), "bfloat16": Peak(800e9, "b")}
    card = Peaks(0, PEAKS.float32, PEAKS.memory, card="a card", products=products)
    for kind, share in (("float32", 1), ("tf32", 1 / 4), ("bfloat16", 1 / 8)):
        found = of(10.0, flops, 8, kind, card, on_card=True)
        assert found["roof_fraction"] == pytest.approx(share)
    assert np.isnan(of(10.0, flops, 8, peaks=card)["roof_fraction"])  # ran on the processor
    old = Peaks(0, PEAKS.float32, PEAKS.memory, card="a card without TF32")
    assert of(10.0, flops, 8, "tf32", old, on_card=True)["roof_fraction"] == pytest.approx(1)


def test_onnxruntime_multiplies_in_tf32_on_a_card(trace):
    run = trace.runs[0]
    groups = [(str(kernel.node),) for kernel in run.kernels]
    kernels = [replace(k, provider="CUDAExecutionProvider", device_us=5.0) for k in run.kernels]
    for each, kind in ((run, "float32"), (replace(run, kernels=tuple(kernels)), "tf32")):
        rows = roofline.rows(timing(each, groups), each, groups)
        assert {(row.arithmetic, row.on_card) for row in rows} == {(kind, kind == "tf32")}


@pytest.mark.parametrize(
    ("time", "flops", "size"), [(0.0, 10, 10), (10.0, None, 10), (10.0, 10, None), (10.0, 0, 0)]
)
def test_what_is_not_known_has_no_roof(time, flops, size):
    found = of(time, flops, size)
    assert np.isnan(found["roof_fraction"])
    assert pd.isna(found["bound"])


@pytest.mark.parametrize(
    ("low", "high", "is_rated"),
    [(9.0, 11.0, True), (1.0, 19.0, True), (0.9, 20.0, False), (0.0, 1e3, False)],
)
def test_a_time_below_the_resolution_has_no_rate(low, high, is_rated):
    found = of(10.0, 10_000, 10, interval=(low, high))
    assert found.notna().all() if is_rated else found.isna().all()
    assert of(0.2, 10, 10, interval=(0.1, 0.3)).isna().all()


def test_a_row_above_its_roof_says_why():
    assert of(1.0, 1, 100_000)["bound"] == "cache"
    assert of(1.0, 1, 100_000)["roof_fraction"] == pytest.approx(5.0)
    skipped = of(10.0, 5_000_000, 8, macs=400_000)  # of 2.5 M MACs it need take 0.4 M
    assert (skipped["bound"], skipped["roof_fraction"]) == ("fewer ops", pytest.approx(5.0))


@pytest.mark.parametrize("known", [{"macs": 600_000}, {"interval": (5.0, 12.0)}])
def test_what_cannot_be_is_an_error_of_the_time(known):
    found = of(10.0, 1_200_000, 8, **known)  # 12 us at the peak
    assert (found["bound"], found["roof_fraction"]) == ("compute", 1.0)
    assert of(7.0, 1_200_000, 8, **known).isna().all()  # too wrong to tell a rate
    assert of(7.0, 1_200_000, 1_000_000, **known).isna().all()  # also where memory limits it


def test_without_peaks_there_are_rates_alone():
    found = of(10.0, 1000, 1000, peaks=None)
    assert found["gflops_per_s"] == pytest.approx(0.1)
    assert pd.isna(found["roof_fraction"])


CHAIN = """
<ir_version: 8, opset_import: ["": 17]>
chain (float[1,16,8,8] x) => (float[1,16,8,8] r, float[1,1024] flat, float[1,1024] e) {
  c = Conv <kernel_shape = [1,1]> (x, w)
  r = Relu (c)
  s = Sigmoid (r)
  m = Mul (s, s)
  flat = Flatten (m)
  e = Exp (flat)
}
"""


def chain():
    proto = parse(CHAIN)
    weight = np.ones((16, 16, 1, 1), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return loading.from_proto(proto)


FEATURES, WEIGHTS = 4 * 16 * 8 * 8, 4 * 16 * 16


@pytest.mark.parametrize(
    ("group", "tensors"),
    [
        ((0,), FEATURES + WEIGHTS + FEATURES),
        ((0, 1), FEATURES + WEIGHTS + FEATURES),  # c stays inside
        ((0, 1, 2), FEATURES + WEIGHTS + 2 * FEATURES),  # r is a result: it is written
        ((1, 2), 3 * FEATURES),
        ((2, 3), FEATURES + FEATURES),  # s is read twice, and stays inside
        ((2, 3, 4), FEATURES + FEATURES),  # a view of what leaves
        ((4,), 0),
        ((4, 5), FEATURES + FEATURES),  # what a view shows is read by who uses it
    ],
)
def test_what_a_group_hands_to_itself_is_not_moved(group, tensors):
    model = chain()
    keys = tuple(model.nodes[i].key for i in group)
    types = shape_inference.infer(model, {"x": (1, 16, 8, 8)})
    assert typed_model.kernel_traffic(TypedModel(model, types), [keys]) == {keys: tensors}


def test_a_single_node_moves_what_is_counted_for_it():
    model = loading.from_proto(residual())
    types = shape_inference.infer(model, {"x": (2, 3, 16, 16)})
    counted = cost(TypedModel(model, types)).table
    single = [(node.key,) for node in model.nodes]
    found = typed_model.kernel_traffic(TypedModel(model, types), single)
    moved = (counted["bytes_read"] + counted["bytes_written"]).to_dict()
    assert {keys[0]: size for keys, size in found.items()} == moved


def rated(rows):
    """Whether the time of each row says something of a rate."""
    columns = ("time_us_ci95_low", "time_us")
    return np.array(
        [roofline.has_rate(*each) for each in rows[list(columns)].itertuples(index=False)]
    )


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(residual(), runs=20, threads=1, peaks=lambda threads: PEAKS)


def test_every_kernel_that_took_time_has_a_rate_and_all_the_work_is_told_once(trace):
    rows = by_node(trace.nodes)
    own = rows[rows["index"].notna()]
    timed = own[rated(own)]
    assert timed["gflops_per_s"].notna().all()
    assert own[own["time_us"].notna() & ~rated(own)]["gflops_per_s"].isna().all()
    work = (timed["gflops_per_s"] * timed["time_us"]).sum() * 1e3
    assert work == pytest.approx(timed["flops"].sum())


def test_a_fused_kernel_is_one_row(trace):
    nodes = trace.nodes.set_index("node")
    first = nodes[nodes["op_type"] == "Conv"].iloc[1]
    others = nodes[(nodes["kernels"] == first["kernels"]) & nodes["time_us"].isna()]
    assert {"Add", "Relu"} <= set(others["op_type"])
    assert others["gflops_per_s"].isna().all()
    # it reads r1, which is added as well, and its weights, and writes r2: the sum stays inside
    features, weights = 4 * 16 * 16 * 16, first["param_bytes"]
    moved = first["gbytes_per_s"] * first["time_us"] * 1e3
    assert moved == pytest.approx(2 * features + weights)


def test_folded_rows_have_the_rates_of_their_sums(trace):
    nodes = trace.nodes.assign(time_us=trace.nodes["time_us"].where(rated(trace.nodes)))
    folded = grouped(nodes, "op").set_index("op_type")
    known = by_node(nodes)
    known = known[known["gflops_per_s"].notna()].groupby("op_type")[["flops", "time_us"]].sum()
    for op, row in known.iterrows():
        rate = row["flops"] / row["time_us"] / 1e3
        assert folded.loc[op, "gflops_per_s"] == pytest.approx(rate)


def test_the_bound_of_a_group_is_that_of_most_of_its_time():
    rows = pd.DataFrame(
        {
            "module": ["a", "a", "a", "b"],
            "time_us": [3.0, 4.0, 5.0, 1.0],
            "gflops_per_s": [1.0, 2.0, np.nan, np.nan],
            "gbytes_per_s": [1.0, 1.0, 1.0, np.nan],
            "roof_fraction": [0.5, 1.0, 0.1, np.nan],
            "bound": ["memory", "compute", "memory", None],
        }
    )
    found = roofline.averaged(rows, "module")
    assert found.loc["a", "bound"] == "memory"
    assert found.loc["a", "gflops_per_s"] == pytest.approx((3 * 1 + 4 * 2) / 7)
    assert found.loc["a", "roof_fraction"] == pytest.approx((1.5 + 4 + 0.5) / 12)
    assert found.loc["b"].isna().all()


def test_a_group_is_never_above_the_roof():
    columns = {"gflops_per_s": 1.0, "gbytes_per_s": 1.0, "module": "a", "time_us": 1.0}
    rows = pd.DataFrame({"roof_fraction": [3.0, 0.5], "bound": ["cache", "memory"], **columns})
    assert roofline.averaged(rows, "module").loc["a", "roof_fraction"] == pytest.approx(0.75)


def test_peaks_of_a_busy_machine_are_told_to_be_that():
    (note,) = roofline.notes(replace(PEAKS, cpu_share=0.4))
    assert "other programs took 60% of the CPU" in note
    assert roofline.notes(None) == roofline.notes(PEAKS) == ()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["md", "html"])
def test_pages_say_that_peaks_are_too_low(trace, form):
    busy = replace(PEAKS, cpu_share=0.4)
    shown = replace(trace, environment=replace(trace.environment, peaks=busy))
    assert b"(1 thread, too low: the machine was busy)" in render(shown, form)
    assert b"too low" not in render(trace, form)


def test_the_environment_tells_how_busy_the_machine_was(trace):
    load = Load(others=0.58, stolen=0.003, interruptions=312)
    known = replace(trace.environment, peaks=replace(PEAKS, cpu_share=0.4, load=load))
    facts = environment.machine_fields(known)
    assert ("", "too low: other programs took 60% of the CPU in all tries") in facts
    assert facts[-1] == (
        "meanwhile",
        "other programs used 58% of the CPU, the host of this virtual machine kept 0.3%, "
        "312 interruptions of the measurement",
    )


PRODUCT = """
<ir_version: 8, opset_import: ["": 17]>
product (float[64,512] x) => (float[64,64] y) {
  m = MatMul (x, w)
  y = Relu (m)
}
"""


def product():
    proto = parse(PRODUCT)
    weight = np.ones((512, 64), np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return proto


def slow(threads):
    """Peaks that every product beats, as a machine that was busy might give."""
    return Peaks(threads, Peak(1e6, "told"), Peak(1e15, "told"), None)


def test_a_product_that_beats_a_peak_becomes_the_peak(monkeypatch):
    asked = []
    found = tracer.profile(
        product(), runs=20, threads=1, in_process=True,
        peaks=lambda threads: asked.append(threads) or slow(threads),
    )  # fmt: skip
    peak, run = found.environment.peaks.float32, found.runs[0]
    (position,) = (n for n, kernel in enumerate(run.kernels) if "MatMul" in kernel.op_type)
    assert asked == [1, 1]  # measured again, once
    longest = np.median(run.samples[:, position]) + run.tick_us
    assert peak.rate == pytest.approx(2 * 64 * 512 * 64 / longest * 1e6)
    assert peak.by == "MatMul, float32[64,512] to float32[64,64], in a profile"
    assert [note.split(", ")[-1] for note in found.notes if "peak" in note] == [
        "so the peaks were measured again", "which is the peak now",
    ]  # fmt: skip
    assert (found.nodes["roof_fraction"].dropna() <= roofline.ABOVE).all()


def test_peaks_that_were_measured_too_low_are_measured_again_and_kept(tmp_path, monkeypatch):
    fast = Peaks(1, Peak(1e15, "fast"), Peak(1e15, "fast"), None)
    measured = iter([replace(slow(1), cpu_share=0.5), fast])
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(host, "measure", lambda threads: next(measured))
    for _ in range(2):
        found = tracer.profile(
            product(), runs=5, threads=1, in_process=True, peaks=host.peaks
        ).environment.peaks
        assert found == host.stored_peaks(1) == fast


def test_of_what_is_no_product_and_of_other_executors_nothing_is_shown():
    run = tracer.profile(residual(), runs=5, threads=1).runs[0]
    groups = [(str(position),) for position in range(len(run.kernels))]
    products = [k.op_type in ("Conv", "FusedConv", "Gemm") for k in run.kernels]
    for (node,), is_product in zip(groups, products, strict=True):
        assert bool(roofline.reached_peaks(run, groups, {node: 1e12})) is is_product
    assert sum(products) == 3
    every = {node: 1e12 for (node,) in groups}
    assert roofline.reached_peaks(replace(run, executor="reference"), groups, every) == {}


def test_sizes_that_depend_on_data_come_from_the_run():
    found = tracer.profile(parse(DATA_DEPENDENT), runs=5, threads=1, peaks=lambda threads: PEAKS)
    rows = found.nodes[rated(found.nodes)]
    assert rows["gbytes_per_s"].notna().all()


def test_stored_integers_are_read_as_integers_by_the_kernel_that_multiplies_them():
    """As floats, which the kernel never makes, the weights would be four times as many bytes."""
    model = parse("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,512] x) => (float[1,512] y) {
        q = QuantizeLinear (x, s, u)  d = DequantizeLinear (q, s, u)
        wd = DequantizeLinear (w, s, i)  m = MatMul (d, wd)
        o = QuantizeLinear (m, s, u)  y = DequantizeLinear (o, s, u) }""",
        w=np.random.default_rng(0).integers(-99, 99, (512, 512)).astype(np.int8),
        s=np.array(0.02, np.float32), u=np.array(128, np.uint8), i=np.array(0, np.int8),
    )  # fmt: skip
    trace = tracer.profile(model, runs=20, threads=1)
    (row,) = trace.nodes[trace.nodes["gbytes_per_s"].notna() & (trace.nodes["macs"] > 0)].to_dict(
        "records"
    )
    moved, work = (1e3 * row[name] * row["time_us"] for name in ("gbytes_per_s", "gflops_per_s"))
    assert 512 * 512 < moved < 1.5 * 512 * 512
    assert 2 * 512 * 512 <= work < 2.2 * 512 * 512  # and no products with scales
