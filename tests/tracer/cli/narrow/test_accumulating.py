"""`tracer interpret --accumulator` as a user meets it."""

import json
from typing import get_args

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import numpy_helper

import tracer
import tracer.cli
from models import families
from tests.graphs import parse, residual
from tests.interpreter.models import onnxruntime
from tests.tracer.cli.narrow.command import nodes, run
from tracer.accumulators.spec import accumulator
from tracer.cli import _accumulating
from tracer.graph.loading import open_model
from tracer.inputs.datasets.opening import open_dataset


def test_the_choices_are_those_of_the_accumulator():
    assert get_args(accumulator.Overflow) == _accumulating.OVERFLOWS
    assert get_args(accumulator.Bias) == _accumulating.BIASES


def test_the_table_of_overflows_is_printed(model, file, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(capfd, model, "--accumulator", 15, "--inputs", file, "--notes")
    assert code == 0
    for word in ("2 of 2 nodes overflow at 15 bits", "bits suffice for this data",
                 "transient", "guaranteed", " time ", "inputs are those of"):  # fmt: skip
        assert word in out


@pytest.mark.nightly
def test_files_are_written_by_extension_and_rendered_again(model, file, capfd, tmp_path):
    pytest.importorskip("matplotlib")
    targets = [tmp_path / f"r.{extension}" for extension in ("trace", "csv", "json", "md", "svg")]
    options = [option for target in targets for option in ("-o", target)]
    code, _, err = run(capfd, model, "--accumulator", 15, "--inputs", file, *options)
    assert (code, err.count("wrote")) == (0, 5)
    table = pd.read_csv(tmp_path / "r.csv").set_index("node")
    assert table.loc["c", "overflow_outputs"] > 0
    assert table.loc["c", "time_us"] > 0
    report = ["report", str(tmp_path / "r.trace"), "-o", str(tmp_path / "again.svg")]
    assert tracer.cli.main(report) == 0
    assert "2 of 2 nodes overflow at 15 bits" in capfd.readouterr().out
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "r.svg").read_bytes()


def test_batches_add_up_to_the_whole(model, file, capfd):
    whole = nodes(capfd, model, "--accumulator", 15, "--inputs", file)
    parts = nodes(capfd, model, "--accumulator", 15, "--inputs", file, "--batch", 2)
    twice = nodes(capfd, model, "--accumulator", 15, "--inputs", file, "--inputs", file)
    for key in ("c", "m"):
        for name in ("acc_min", "final_max", "bits_observed", "bits_guaranteed", "max_abs_error"):
            assert whole[key][name] == parts[key][name] == twice[key][name]
        for name in ("outputs", "overflow_outputs", "saturation_events", "outputs_changed"):
            assert whole[key][name] == parts[key][name] == twice[key][name] / 2


def test_a_wide_accumulator_gives_the_outputs_of_onnxruntime(model, file, feeds, capfd, tmp_path):
    wanted = dict(zip(("c", "m", "r"), onnxruntime(onnx.load(model), feeds), strict=True))
    target = tmp_path / "out.npz"
    args = (model, "--accumulator", 30, "--inputs", file, "--batch", 4, "-o", target)
    assert run(capfd, *args)[0] == 0
    with np.load(target) as archive:
        for name, value in wanted.items():
            np.testing.assert_array_equal(archive[name], value)
    assert run(capfd, *args)[0] == 3  # it exists


def test_a_narrow_one_clips_the_outputs(model, file, feeds, capfd, tmp_path):
    run(capfd, model, "--accumulator", 15, "--inputs", file, "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as archive:
        assert archive["m"].max() == 2**14 - 1
        assert archive["c"].min() == -(2**14)


@pytest.mark.nightly
def test_a_folder_of_outputs_has_a_test_for_each_batch(model, file, capfd, tmp_path):
    folder = tmp_path / "sets"
    run(capfd, model, "--accumulator", 15, "--inputs", file, "--batch", 4, "-o", folder)
    assert sorted(p.name for p in folder.iterdir()) == [f"test_data_set_{i}" for i in range(3)]
    last = onnx.load_tensor(folder / "test_data_set_2" / "output_1.pb")
    assert numpy_helper.to_array(last).shape == (1, 5)
    again = nodes(capfd, model, "--accumulator", 15, "--inputs", folder)
    first = nodes(capfd, model, "--accumulator", 15, "--inputs", file, "--batch", 4)
    names = ("acc_min", "outputs", "overflow_outputs", "saturation_events", "outputs_changed")
    assert [again["c"][name] for name in names] == [first["c"][name] for name in names]


def test_options_reach_the_accumulator(model, file, capfd):
    code, out, _ = run(
        capfd, model, "--accumulator", "m=9", "--overflow", "wrap", "--order", "lanes(4)",
        "--bias", "last", "--product-bits", 12, "--magnitude", "--zero-points",
        "after", "--inputs", file, "--json",
    )  # fmt: skip
    (sums,) = json.loads(out)["runs"][0]["sums"]
    assert (code, sums["node"]) == (0, "m")
    assert sums["accumulator"] == {
        "bits": 9, "overflow": "wrap", "order": "lanes(4)", "product_bits": 12, "bias": "last",
        "convention": "magnitude", "zero_points": "after",
    }  # fmt: skip


def test_a_policy_file_is_read(model, file, capfd, tmp_path):
    (tmp_path / "p.toml").write_text("[c]\nbits = 20\n[MatMulInteger]\nbits = 9\n")
    rows = nodes(capfd, model, "--accumulator", tmp_path / "p.toml", "--inputs", file)
    assert (rows["c"]["bits"], rows["m"]["bits"], rows["r"]["bits"]) == (20, 9, None)


def test_floats_take_fixed_point_numbers(tmp_path, capfd):
    onnx.save(residual(), tmp_path / "f.onnx")
    code, out, err = run(capfd, tmp_path / "f.onnx", "--accumulator", "Conv=20")
    assert (code, out) == (3, "")
    assert "node 'c1' (Conv) has no integer arithmetic" in err
    rows = nodes(capfd, tmp_path / "f.onnx", "--accumulator", "Conv=20", "--fixed", "8:5/8:4")
    assert rows["c2"]["outputs"] == 16 * 16 * 16


def test_overflow_can_be_an_error(model, file, capfd):
    code, out, err = run(capfd, model, "--accumulator", 12, "--overflow", "error", "--inputs", file)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "node 'c' (ConvInteger" in err
    assert "[-2048, 2047], the range of 12 bits" in err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--accumulator", "65"], 2, "accumulator '65': an accumulator of 65 bits"),
        (["--accumulator", "conv9=16"], 2, "entry 'conv9=16' matches no node"),
        (["--accumulator", "r=16"], 3, "node 'r' (Relu) adds nothing up"),
        (["--accumulator", "no.toml"], 3, "no.toml: cannot be read"),
        (["--accumulator", "16", "--order", "random"], 2, "'random' is not an order"),
        (["--accumulator", "16", "--product-bits", "99"], 2, "a product of 99 bits"),
        (["--accumulator", "16", "--overflow", "clip"], 2, "--overflow"),
        (["--accumulator", "16", "--fixed", "8"], 2, "not a fixed-point format"),
        (["--accumulator", "16", "--against", "ort"], 2, "--against and --accumulator"),
        (["--accumulator", "16", "-o", "x.xls"], 2, "names no format"),
        (["--accumulator", "16", "-o", "a", "-o", "b.npz"], 2, "2 places for the model's outputs"),
        (["--accumulator", "16", "--inputs", "nowhere"], 3, "nowhere: no such inputs"),
        (["--product-bits", "12"], 2, "--product-bits is about narrow accumulators"),
        (["--magnitude"], 2, "--magnitude is about narrow accumulators"),
        (["--certificate", "c.json"], 2, "--certificate is about narrow accumulators"),
        (["--inputs", "a.npz", "--inputs", "b.npz"], 2, "2 inputs are named for one inference"),
        (["-o", "sums.txt"], 2, "names no format"),
        (["--check-certificate", "none.json"], 3, "none.json: cannot be read"),
    ],
)
def test_an_error_is_one_line(model, options, code, message, capfd):
    exit_code, out, err = run(capfd, model, *options)
    assert (exit_code, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.nightly
def test_overflows_are_summed_by_module_at_a_depth_and_by_line(capfd):

    args = (families.shipped("lenet", "torch"), "--accumulator", "16", "--fixed", "8:5/8:7")
    code, out, _ = run(capfd, *args, "--by", "source")
    assert code == 0
    assert "torch_net.py:26 " in out
    deep = run(capfd, *args, "--by", "module", "--depth", "1")[1]
    assert " module " in deep and "conv1 " in deep
    code, _, err = run(capfd, *args, "--by", "op", "--depth", "1")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--by module" in err


def untimed(row):
    return {n: v for n, v in row.items() if "time" not in n and not n.endswith("_per_s")}


@pytest.mark.nightly
def test_a_data_set_is_what_its_samples_in_a_file_are(capfd, tmp_path):
    pytest.importorskip("sklearn")
    lenet = families.shipped("lenet", "torch").with_suffix(".int8.onnx")
    loaded = open_model(lenet)
    (batch,) = open_dataset("digits", loaded, limit=10).batches(10)
    np.savez(tmp_path / "d.npz", labels=batch.labels, **batch.inputs)
    policy = ("--accumulator", "node_Conv_22=18,24", "--batch", 4)
    sources = {"set": ("--data", "digits", "--limit", 10), "file": ("--inputs", tmp_path / "d.npz")}
    tables = {name: nodes(capfd, lenet, *policy, *source) for name, source in sources.items()}
    assert {n: untimed(row) for n, row in tables["set"].items()} == {
        n: untimed(row) for n, row in tables["file"].items()
    }
    assert tables["set"]["node_Conv_22"]["overflow_outputs"] > 0


def test_a_note_names_a_batch_that_was_filled_up(capfd, tmp_path):
    text = """
    <ir_version: 9, opset_import: ["": 20]>
    g (uint8[2,3] x) => (int32[2,2] y) { y = MatMulInteger (x, w) }
    """
    onnx.save(parse(text, w=np.ones((3, 2), np.int8)), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.ones((5, 3), np.uint8))
    for option in ("--data", "--inputs"):
        code, out, _ = run(capfd, tmp_path / "m.onnx", "--accumulator", 8, option,
                           tmp_path / "d.npz", "--json")  # fmt: skip
        assert code == 0
        assert "the last batch has 1 and repeats its last sample" in str(json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--limit", 3), 2, "--limit needs --data"),
        (("--data", "d.npz", "--inputs", "d.npz"), 2, "--inputs and --data together"),
        (("--data", "d.npz", "--dim", "N=3"), 2, "own shapes decide"),
        (("--data", "numbers"), 2, "no data set 'numbers'"),
        (("--data", "mnist", "--data-dir", "no"), 3, "are images for a model with one input"),
        (("--data", "none.npz"), 3, "none.npz: no such file"),
    ],
)
def test_an_error_of_the_data_is_one_line(model, capfd, options, code, message):
    for accumulating in ((), ("--accumulator", 16)):
        exit_code, out, err = run(capfd, model, *options, *accumulating)
        assert (exit_code, out, len(err.splitlines())) == (code, "", 1)
        assert message in err
