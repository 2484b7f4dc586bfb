"""What-ifs over accumulators of several kinds: scores, counts, energies, and messages."""

import json
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

import tracer
import tracer.cli
from models import families
from tests.tracer.whatif import networks
from tracer.accumulators.spec import kinds
from tracer.errors import UsageError
from tracer.graph.loading import open_model
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.request import Samples
from tracer.interpreter.interpreter import Interpreter
from tracer.limits import Limits
from tracer.whatif import accumulators
from tracer.whatif.criteria import OutOfTimeError
from tracer.whatif.options import WhatIfOptions

LENET = families.shipped("lenet", "torch")
FLOATS = "fp32,tc:h100,fp16,e4m3"
SAMPLES = WhatIfOptions(limit=60, energy="horowitz45")


@pytest.fixture(scope="module")
def floats():
    pytest.importorskip("sklearn")
    return tracer.what_if(LENET, FLOATS, "digits", SAMPLES, in_process=True)


def accuracy(accumulator, operands=None):
    """The share of 60 digits that `tracer.interpret` recognises in an accumulator, in percent."""
    data = open_dataset("digits", open_model(LENET), limit=60)
    labels = np.concatenate([batch.labels for batch in data.batches(60)])
    outputs = []
    tracer.interpret(
        LENET, accumulator=accumulator, operands=operands, batch=60, in_process=True,
        inputs=Samples("digits", 60), receive=lambda feeds, values: outputs.append(values[0]),
    )  # fmt: skip
    return 100 * (np.concatenate(outputs).argmax(1) == labels).mean()


@pytest.mark.needs("sklearn")
def test_each_row_is_a_run_in_its_accumulator(floats):
    rows = {row.accumulator: row for row in floats.rows}
    assert list(rows) == FLOATS.split(",")
    assert rows["fp16"].score == pytest.approx(accuracy("fp16"))
    assert rows["e4m3"].score == pytest.approx(accuracy("e4m3"))
    assert rows["tc:h100"].score == pytest.approx(accuracy("tc:h100", "fp16"))
    assert rows["tc:h100"].operands == "fp16"
    assert rows["fp32"].operands is None
    assert rows["e4m3"].score < floats.score - 1
    assert rows["fp32"].rel_error_p99 < rows["fp16"].rel_error_p99 < rows["e4m3"].rel_error_p99
    assert rows["fp32"].swamped_share < rows["fp16"].swamped_share < rows["e4m3"].swamped_share
    assert len({row.outputs for row in floats.rows}) == 1


@pytest.mark.needs("sklearn")
def test_energies_are_horowitzs_and_the_cheapest_is_within_the_budget(floats):
    """A multiplication of float32 takes 3.7 pJ, an addition 0.9, or 0.4 of float16."""
    nodes = tracer.count(LENET, in_process=True).nodes
    summed = nodes[nodes["macs"] > 0]
    muls, adds = summed["muls"].sum(), summed["adds"].sum()
    rows = {row.accumulator: row.energy for row in floats.rows}
    assert rows["fp32"] == pytest.approx(3.7 * muls + 0.9 * adds)
    assert rows["fp16"] == pytest.approx(3.7 * muls + 0.4 * adds)
    assert rows["tc:h100"] is None and rows["e4m3"] is None
    assert floats.cheapest.accumulator == "fp16"
    assert [row.accumulator for row in floats.sufficient] == ["fp32", "tc:h100", "fp16"]
    strict = replace(floats, score=floats.score + 50)
    assert strict.sufficient == () and strict.cheapest is None


@pytest.mark.nightly
def test_integers_of_a_quantised_model_count_overflows(tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    text = "32(overflow=wrap),two-level(8,4,32),14(bias=last)"
    result = tracer.what_if(model, text, data, WhatIfOptions(batch=5), in_process=True)
    for row, spelled in zip(result.rows, kinds.listed(text), strict=True):
        trace = tracer.interpret(model, accumulator=spelled, inputs=data, batch=5, in_process=True)
        assert row.overflow_outputs == trace.nodes["overflow_outputs"].sum()
        assert row.outputs == trace.nodes["outputs"].sum()
        assert row.rel_error_p50 is None
    wide, tiles, _ = result.rows
    assert wide.overflow_outputs == 0 and wide.score == result.score
    assert tiles.overflow_outputs > 0
    arrays = np.load(data)
    plain = Interpreter(str(model)).run(None, {"x": arrays["x"]})[0]
    assert result.score == pytest.approx(100 * (plain.argmax(1) == arrays["labels"]).mean())


@pytest.mark.nightly
@pytest.mark.needs("sklearn")
def test_integers_of_a_float_model_are_those_of_the_quantised_model():
    options = WhatIfOptions(limit=30)
    result = tracer.what_if(LENET, "32(overflow=wrap),fp32", "digits", options, in_process=True)
    assert any("was quantised first" in note for note in result.notes)
    fixed = replace(options, fixed="16:8")
    again = tracer.what_if(LENET, "32(overflow=wrap),fp32", "digits", fixed, in_process=True)
    assert not any("was quantised first" in note for note in again.notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:32", None),
        ("12,14,16", None),
        ("conv1=18,*=12:32", None),
        ("16", None),
        ("abc", None),
        ("fp16", ("fp16",)),
        ("16, two-level(16,64,32)", ("16", "two-level(16,64,32)")),
    ],
)
def test_a_list_has_accumulators_with_names(text, expected):
    assert kinds.listed(text) == expected


@pytest.mark.parametrize(
    ("text", "options", "trace", "message"),
    [
        ("fp32,fp16", WhatIfOptions(orders=("tree",)), None, "options.orders is about widths"),
        ("fp32,fp16", WhatIfOptions(search=False), None, "options.search=False is about widths"),
        ("fp32,fp16", WhatIfOptions(weight_bits=(4,)), None, "options.weight_bits is about widths"),
        ("fp32,fp16", None, "w.trace", "a .trace keeps evaluations of widths"),
        ("fp32,nonsense", None, None, "'nonsense' is not an accumulator"),
        ("fp32,*=12:32", None, None, "is not an accumulator"),
    ],
)
def test_what_names_do_not_take_is_said(text, options, trace, message, tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    trace = trace and tmp_path / trace
    with pytest.raises(UsageError, match=message):
        tracer.what_if(model, text, data, options, trace=trace, in_process=True)


def test_operands_are_for_floats(tmp_path):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    with pytest.raises(UsageError, match="operands have formats with float accumulators"):
        tracer.what_if(model, "12:14", data, operands="fp16", in_process=True)


def test_the_table_fits_terminals_and_files_have_every_column(tmp_path, monkeypatch, capfd):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    path = tmp_path / "sweep.json"
    arguments = ["whatif", str(model), "--accumulator", "32(overflow=wrap),fp16,12", "--data",
                 str(data)]  # fmt: skip
    for width in (80, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        assert tracer.cli.main(arguments) == 0
        out = capfd.readouterr().out
        assert max(map(cell_len, out.splitlines())) <= width
        assert "cheapest" in out and "Within the budget" in out
    assert tracer.cli.main([*arguments, "-o", str(path)]) == 0
    document = json.loads(path.read_text())
    assert [row["accumulator"] for row in document["accumulators"]] == ["32(overflow=wrap)", "fp16",
                                                                       "12"]  # fmt: skip
    assert {"score", "change", "overflow_share", "swamped_share", "rel_error_p99", "energy",
            "saved"} <= document["accumulators"][0].keys()  # fmt: skip
    assert document["cheapest"] in {"32(overflow=wrap)", "12"}


def test_a_run_out_of_time_tells_what_it_tried(tmp_path, monkeypatch):
    model, data = networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")
    run_all = accumulators.AccumulatorTask.run
    calls = []

    def ending(task, *run):
        calls.append(run)
        if len(calls) > 2:
            task.deadline._ended = "out of time"
            raise OutOfTimeError("out of time")
        return run_all(task, *run)

    monkeypatch.setattr(accumulators.AccumulatorTask, "run", ending)
    limits = Limits(seconds=1000)
    result = tracer.what_if(model, "fp32,fp16", data, limits=limits, in_process=True)
    assert [row.accumulator for row in result.rows] == ["fp32"]
    assert "out of time: 1 of 2 accumulators were tried" in result.notes
