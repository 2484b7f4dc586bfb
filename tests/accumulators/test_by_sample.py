"""Statistics by sample: against sums by Python integers, a sample alone, and all together."""

from __future__ import annotations

import io
from itertools import accumulate
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
import tracer.cli
from tests.examples import examples
from tests.graphs import parse
from tracer.accumulators.statistics.partial_sums import QUANTITIES
from tracer.analyzers.grouping import by_sample
from tracer.analyzers.options import ViewOptions
from tracer.errors import UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.request import Samples
from tracer.records.trace import Trace

LENET = "models/lenet/lenet.int8.onnx"
TWO = """<ir_version: 8, opset_import: ["": 17]> two (int8[N,5] x) => (int32[N,2] y, int32[N,1] z) {
    y = MatMulInteger(x, a)
    z = MatMulInteger(x, b)
}"""
BITS = {"y": 12, "z": 10}


def expected(x: np.ndarray, weights: dict[str, np.ndarray]) -> dict[str, int | str | None]:
    """The row of one sample (5,), one addition after the other."""
    row = dict.fromkeys(QUANTITIES[:-1], 0) | {"final_min": 1 << 40, "final_max": -(1 << 40)}
    over = dict.fromkeys(weights, 0)
    for node, w in weights.items():
        low, high = -(1 << BITS[node] - 1), (1 << BITS[node] - 1) - 1
        for column in w.T.tolist():
            terms = [int(a) * b for a, b in zip(x, column, strict=True)]
            exact, clipped, events = list(accumulate(terms, initial=0)), 0, 0
            for term in terms:
                events += not low <= clipped + term <= high
                clipped = min(max(clipped + term, low), high)
            leaves, ends = (not all(low <= s <= high for s in some) for some in (exact, exact[-1:]))
            over[node] += leaves
            for name, value in (
                ("outputs", 1), ("overflow_outputs", leaves), ("persistent_outputs", ends),
                ("transient_outputs", leaves and not ends), ("saturation_events", events),
                ("outputs_changed", clipped != exact[-1]),
            ):  # fmt: skip
                row[name] += value
            widest = max((s if s >= 0 else ~s).bit_length() + 1 for s in exact)
            for name, value, join in (
                ("acc_min", min(exact), min), ("acc_max", max(exact), max),
                ("final_min", exact[-1], min), ("final_max", exact[-1], max),
                ("max_abs_error", abs(clipped - exact[-1]), max), ("bits_observed", widest, max),
            ):  # fmt: skip
                row[name] = join(row[name], value)
    row["bits_observed"] = max(row["bits_observed"], 2)  # no accumulator is narrower
    worst = max(over, key=over.__getitem__) if any(over.values()) else None
    return {"worst_node": worst, **row}


def interpreted(proto: onnx.ModelProto, x: np.ndarray, policy: str, **options: bool) -> Trace:
    """The trace of all rows of `x`; nodes have the names of their outputs."""
    for node in proto.graph.node:
        node.name = node.output[0]
    with TemporaryDirectory() as folder:
        np.savez(f"{folder}/x.npz", x=x)
        feeds = [f"{folder}/x.npz"]
        return tracer.interpret(proto, inputs=feeds, accumulator=policy, threads=1, **options)


@given(st.integers(0, 2**32), st.integers(1, 6))
@examples(30)
def test_every_quantity_is_that_of_the_definition(seed, samples):
    rng = np.random.default_rng(seed)
    x, a, b = (rng.integers(-128, 128, size, np.int8) for size in ((samples, 5), (5, 2), (5, 1)))
    policy = ",".join(f"{node}={bits}" for node, bits in BITS.items())
    trace = interpreted(parse(TWO, a=a, b=b), x, policy, by_sample=True)
    table = by_sample(trace.runs[0]).astype(object)
    rows = table.where(table.notna(), None).to_dict("records")
    assert [row.pop("sample") for row in rows] == list(range(samples))
    assert rows == [expected(row, {"y": a, "z": b}) for row in x]


@pytest.mark.nightly
@pytest.mark.needs("sklearn")
def test_a_sample_has_the_counts_of_a_run_of_its_own_and_all_add_up(tmp_path):
    data = Samples("digits:train", limit=12)
    options = {"accumulator": 17, "threads": 1}
    apart = tracer.interpret(LENET, inputs=data, by_sample=True, **options)
    together = tracer.interpret(LENET, inputs=data, **options)
    assert [sums.tally for sums in apart.runs[0].sums] == [s.tally for s in together.runs[0].sums]
    rows = by_sample(apart.runs[0])
    (batch,) = open_dataset(data.name, loading.load(LENET), limit=12).batches(12)
    for index in (0, 7, 11):
        np.savez(
            tmp_path / f"{index}.npz", **{n: v[index : index + 1] for n, v in batch.inputs.items()}
        )
        alone = tracer.interpret(LENET, inputs=[tmp_path / f"{index}.npz"], **options).nodes
        row = rows.iloc[index]
        for name in ("outputs", "overflow_outputs", "persistent_outputs", "outputs_changed"):
            assert row[name] == alone[name].sum() > 0
        assert (row["acc_min"], row["acc_max"]) == (alone["acc_min"].min(), alone["acc_max"].max())
        assert row["worst_node"] == alone.set_index("node")["overflow_outputs"].idxmax()


def test_statistics_are_kept_in_a_trace_and_printed_by_sample(tmp_path, capfd):
    proto = parse(TWO, a=np.full((5, 2), 100, np.int8), b=np.ones((5, 1), np.int8))
    x = np.array([[0] * 5, [100] * 5, [1] * 5], np.int8)
    trace = interpreted(proto, x, "y=12", by_sample=True)
    trace.save(tmp_path / "s.trace")
    report = ["report", str(tmp_path / "s.trace"), "--by", "sample"]
    assert tracer.cli.main([*report, "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capfd.readouterr().out))
    assert table["sample"].tolist() == [0, 1, 2]
    assert table["overflow_outputs"].tolist() == [0, 2, 0]
    assert table["worst_node"].fillna("").tolist() == ["", "y", ""]
    assert tracer.cli.main([*report, "--csv", "--top", "1"]) == 0
    assert capfd.readouterr().out.splitlines()[1].startswith("1,y,")  # the worst first
    assert tracer.cli.main(report) == 0
    shown = capfd.readouterr().out
    assert "1 of 3 samples overflows; in 1 of them y overflows most" in shown
    assert "time µs" not in shown


def test_what_has_no_statistics_by_sample_is_refused(tmp_path):
    proto = parse(TWO.replace("N,", "4,"), a=np.ones((5, 2), np.int8), b=np.ones((5, 1), np.int8))
    x = np.ones((4, 5), np.int8)
    with pytest.raises(UsageError, match="takes 4 samples at a time"):
        interpreted(proto, x, "y=12", by_sample=True)
    with pytest.raises(UsageError, match="no statistics by sample"):
        interpreted(proto, x, "y=12").save(tmp_path / "s.csv", ViewOptions(by="sample"))
    with pytest.raises(UsageError, match="only narrow accumulators"):
        tracer.interpret(proto, by_sample=True)
    with pytest.raises(UsageError, match="in batches of 2"):
        tracer.interpret(proto, accumulator=16, batch=2, by_sample=True)
