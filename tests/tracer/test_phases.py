"""Phases of language models: recognising a decoder, sizes, work, generations, growth, outputs."""

import io
import json
import re

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracer
import tracer.cli
from tests import decoders
from tests.decoders import FFN, HEADS, KV_HEADS, LAYERS, SIZE, VOCABULARY, WIDTH, grouped
from tests.examples import at_night, examples
from tracer.analyzers.views.trace.phases import line
from tracer.api._generation import Phased, generate, planned
from tracer.containment.activity import silent
from tracer.errors import InputError, ModelError, UsageError
from tracer.executors import registry
from tracer.graph.loading import open_model
from tracer.inputs.decoder import recognise
from tracer.inputs.request import Phases, Step

TOKEN_BYTES = 2 * LAYERS * KV_HEADS * SIZE * 4


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(grouped(), path)
    return path


@pytest.fixture(scope="module")
def decoder(file):
    return recognise(open_model(file))


@pytest.fixture(scope="module")
def profiled(file):
    return tracer.profile(
        file, prefill=6, decode=4, past=(0, 40), runs=3, warmup=1, threads=1, in_process=True
    )


def macs(batch, new, past):
    """The MACs of a pass: products of the weights, and attention over all of the cache."""
    projections = batch * new * WIDTH * SIZE * (2 * HEADS + 2 * KV_HEADS)
    feed_forward = 3 * batch * new * WIDTH * FFN
    attention = 2 * batch * HEADS * SIZE * new * (past + new)
    return LAYERS * (projections + feed_forward + attention) + batch * new * WIDTH * VOCABULARY


def edited(edit):
    proto = grouped()
    edit(proto.graph)
    return proto


def without(which, *fragments):
    def edit(graph):
        kept = [v for v in getattr(graph, which) if not any(f in v.name for f in fragments)]
        del getattr(graph, which)[:]
        getattr(graph, which).extend(kept)

    return edited(edit)


def renamed(old, new):
    def edit(graph):
        for value in graph.input:
            value.name = value.name.replace(old, new)
        for node in graph.node:
            names = [name.replace(old, new) for name in node.input]
            del node.input[:]
            node.input.extend(names)

    return edited(edit)


@pytest.mark.nightly
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 3), st.integers(1, 20), st.integers(1, 9), st.integers(0, 50))
def test_a_count_has_the_work_of_both_phases(batch, prefill, decode, past):
    counted = tracer.count(
        grouped(), batch=batch, prefill=prefill, decode=decode, past=past, in_process=True
    ).nodes
    sums = counted.groupby(["phase", "past"])["macs"].sum()
    assert sums["prefill", 0] == macs(batch, prefill, 0)
    assert sums["decode", past] == macs(batch, 1, past)
    assert not counted["macs"].isna().any()


def test_the_middle_of_the_steps_stands_for_decode(file):
    counted = tracer.count(file, prefill=10, decode=8, in_process=True)
    assert set(counted.nodes["past"]) == {0, 14}
    assert counted.generation.cache.token_bytes == TOKEN_BYTES
    assert counted.generation.cache.nbytes(3, 18) == 3 * 18 * TOKEN_BYTES


def test_sizes_and_lengths_are_bound(decoder):
    step = Step(batch=2, new=3, past=5)
    shapes = decoder.shapes(step)
    assert shapes["input_ids"] == (2, 3)
    assert shapes["attention_mask"] == (2, 8)
    assert shapes["past_key_values.1.value"] == (2, KV_HEADS, 5, SIZE)
    feeds = decoder.feeds(step, 0)
    assert {name: value.shape for name, value in feeds.items()} == shapes
    assert feeds["attention_mask"].tolist() == [[1] * 8] * 2
    assert 0 <= feeds["input_ids"].min() <= feeds["input_ids"].max() < VOCABULARY
    assert (decoder.layers, decoder.cache_bytes(2, 5)) == (LAYERS, 2 * 5 * TOKEN_BYTES)


def test_inputs_of_lengths_get_the_values_of_a_step():
    def edit(graph):
        graph.input.append(
            onnx.helper.make_tensor_value_info("seqlens_k", onnx.TensorProto.INT32, ["batch"])
        )
        for name, shape in (("total_sequence_length", []), ("position_ids", ["batch", "new"])):
            kind = onnx.TensorProto.INT64
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, shape))

    told = recognise(open_model(edited(edit))).lengths(Step(2, 3, 5))
    assert told["seqlens_k"].tolist() == [7, 7]
    assert told["seqlens_k"].dtype == np.int32
    assert told["total_sequence_length"].tolist() == 8
    assert told["position_ids"].tolist() == [[5, 6, 7]] * 2


def test_keys_and_values_of_gpt2_are_one_tensor():
    declared = onnx.helper.make_tensor_value_info
    shape = [2, "batch", 3, "past_seq_len", 16]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["past_0"], ["present_0"])],
        "gpt2",
        [
            declared("input_ids", onnx.TensorProto.INT64, ["batch", "seq_len"]),
            declared("past_0", onnx.TensorProto.FLOAT16, shape),
        ],
        [declared("present_0", onnx.TensorProto.FLOAT16, shape)],
    )
    decoder = recognise(open_model(onnx.helper.make_model(graph)))
    assert (decoder.layers, decoder.cache_bytes(1, 1)) == (1, 2 * 3 * 16 * 2)
    assert decoder.shapes(Step(4, 1, 7))["past_0"] == (2, 4, 3, 7, 16)
    assert decoder.cache[0].heads_and_size == (3, 16)


@pytest.mark.parametrize("batch", [1, 2])
def test_decode_steps_are_one_prefill_of_everything(file, decoder, batch):
    executor = registry.find_stepping("onnxruntime")
    setting = registry.settings_for("onnxruntime", {"threads": 1})
    step = Step(batch, 9, 0)
    feeds = decoder.feeds(step, 3)
    outputs = []
    with executor.stepping(decoder.model, setting) as run:
        cache = generate(
            decoder, run, feeds["input_ids"], Step(batch, 4, 0), lambda us: None, outputs.append
        )
        key = cache["past_key_values.0.key"].numpy()
    logits = np.concatenate([each["logits"].numpy() for each in outputs], axis=1)
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    expected = dict(
        zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True)
    )
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=2e-5)
    np.testing.assert_allclose(key, expected["present.0.key"], rtol=0, atol=2e-5)


def test_generations_are_measured_and_their_cache_is_as_large_as_the_formula_says(decoder):
    executor = registry.find_stepping("onnxruntime")
    setting = registry.settings_for("onnxruntime", {"threads": 1, "runs": 3})
    phases = Phases(5, 4)
    generated = Phased(decoder, phases, executor, 0, silent).measure(setting, 2)
    assert np.shape(generated.step_us) == (3, 4)
    assert len(generated.prefill_us) == 3
    assert generated.allocated_bytes == planned(decoder, phases).cache.nbytes(2, 9)


@pytest.mark.nightly
def test_each_phase_is_a_run_with_rows_of_its_own(profiled):
    assert [(run.phase, run.past) for run in profiled.runs] == [
        ("prefill", 0), ("decode", 0), ("decode", 40),
    ]  # fmt: skip
    sums = profiled.nodes.groupby(["phase", "past"])["macs"].sum()
    expected = {(phase, past): macs(1, 6 if phase == "prefill" else 1, past)
                for phase, past in sums.index}  # fmt: skip
    assert sums.to_dict() == expected
    timed = profiled.nodes.groupby(["phase", "past"])["time_us"].sum()
    assert (timed > 0).all()


@pytest.mark.nightly
def test_files_hold_the_phases(profiled, tmp_path):
    path = profiled.save(tmp_path / "phases.trace")
    loaded = tracer.load(path)
    assert loaded.generation == profiled.generation
    assert [run.key for run in loaded.runs] == [run.key for run in profiled.runs]
    pd.testing.assert_frame_equal(loaded.nodes, profiled.nodes)
    document = json.loads(loaded.save(tmp_path / "phases.json").read_text())
    assert [(run["phase"], run["past"]) for run in document["runs"]] == [
        ("prefill", 0), ("decode", 0), ("decode", 40),
    ]  # fmt: skip
    (configuration,) = document["generation"]["configurations"]
    assert configuration["cache_bytes"] == configuration["cache_bytes_allocated"]
    assert configuration["cache_bytes"] == 10 * TOKEN_BYTES
    speed = configuration["speed"]["decode"]
    assert speed["low"] <= speed["tokens_per_s"] <= speed["high"]
    assert configuration["growth"][0]["name"] is None
    rows = pd.read_csv(loaded.save(tmp_path / "phases.csv"))
    assert set(rows["phase"]) == {"prefill", "decode"}
    assert "decode@40 µs" in loaded.save(tmp_path / "phases.md").read_text()
    assert "tokens/s" in loaded.save(tmp_path / "phases.html").read_text()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", at_night([80, 160], but=[80]))
@pytest.mark.parametrize("by", ["node", "op", "kernel"])
def test_phases_are_side_by_side_in_a_terminal(profiled, tmp_path, width, by, capfd, monkeypatch):
    path = profiled.save(tmp_path / "phases.trace")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)  # a long path in the next step would be wider than the terminal
    assert tracer.cli.main(["report", path.name, "--by", by]) == 0
    shown = capfd.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    assert "prefill µs" in shown
    assert "decode@0 µs" in shown
    assert "tokens/s" in shown
    a_run = r"^(prefill|decode@\d+): [\d,.]+ ± [\d.,]+ (µs|ms|s) a run of"  # both have one unit
    assert len(re.findall(a_run, shown, re.MULTILINE)) == len(profiled.runs)


@pytest.mark.parametrize(
    ("sort", "column"),
    [("MACs", "macs"), ("flops", "flops"), ("op", "op_type"), ("index", "index")],
)
def test_rows_of_phases_are_sorted_by_a_column_of_the_table(file, capfd, sort, column):
    arguments = ["count", str(file), "--prefill", "4", "--decode", "2"]
    assert tracer.cli.main([*arguments, "--csv"]) == 0
    rows = pd.read_csv(io.StringIO(capfd.readouterr().out))
    first = rows[rows["phase"] == "prefill"].set_index("node")[column]
    assert tracer.cli.main([*arguments, "--top", "0", "--sort", sort]) == 0
    words = [line.split() for line in capfd.readouterr().out.splitlines()]
    shown = [first[line[0]] for line in words if line and line[0] in first.index]
    assert len(shown) == len(first)
    assert shown == sorted(first, reverse=column in ("macs", "flops"))


def test_the_commands_name_the_phases(file, capfd):
    arguments = ["count", str(file), "--prefill", "4", "--decode", "2", "--past", "0,8", "--csv"]
    assert tracer.cli.main(arguments) == 0
    rows = pd.read_csv(io.StringIO(capfd.readouterr().out))
    assert rows.groupby("past")["macs"].sum()[8] == macs(1, 1, 8)


def _open(graph, *axes, copied=False):
    """Opens dimensions of a cache; no attention tells them where a copy of it is read."""
    value = next(each for each in graph.input if each.name == "past_key_values.0.key")
    for axis in axes:
        value.type.tensor_type.shape.dim[axis].dim_param = f"open{axis}"
    if copied:
        reader = next(node for node in graph.node if value.name in node.input)
        reader.input[list(reader.input).index(value.name)] = "copy"
        graph.node.insert(0, onnx.helper.make_node("Identity", [value.name], ["copy"]))


def test_heads_that_are_open_follow_from_the_attention():
    proto = edited(lambda graph: _open(graph, 1, 3))
    assert recognise(open_model(proto)).cache[0].heads_and_size == (KV_HEADS, SIZE)
    counted = tracer.count(proto, prefill=4, decode=2, past=7, in_process=True).nodes
    assert counted.groupby("past")["macs"].sum()[7] == macs(1, 1, 7)
    assert tracer.count(proto, in_process=True).nodes["macs"].notna().all()


MODELS = {
    "no cache": (renamed("past_key_values", "old"), "has no cache: no input past…"),
    "no tokens": (renamed("input_ids", "x"), "has no input of tokens: no input_ids"),
    "no present": (without("output", "present.1.key"), "no output returns the cache"),
    "unknown input": (renamed("attention_mask", "bias"), "nothing tells the values of input"),
    "open heads": (
        edited(lambda graph: _open(graph, 1, copied=True)),
        "heads and size are not fixed",
    ),
}


@pytest.mark.parametrize("which", MODELS)
def test_another_model_is_refused_by_what_it_lacks(which):
    proto, message = MODELS[which]
    with pytest.raises(ModelError, match=message):
        recognise(open_model(proto))


def test_no_work_is_counted_of_a_phase_that_no_runtime_takes():
    """Positions are learned up to 6."""

    def edit(graph):
        at = next(at for at, node in enumerate(graph.node) if node.name == "embed")
        positions = np.ones((1, 6, WIDTH), np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(positions, "positions"))
        added = onnx.helper.make_node("Add", ["words", "positions"], graph.node[at].output, "add")
        graph.node[at].output[0] = "words"
        graph.node.insert(at + 1, added)

    proto = edited(edit)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {
        each.name: np.ones((1, 8), np.int64)
        if len(each.shape) == 2
        else np.zeros((1, KV_HEADS, 0, SIZE), np.float32)
        for each in session.get_inputs()
    }
    with pytest.raises(Exception, match="broadcast"):
        session.run(None, feeds)
    assert tracer.count(proto, prefill=6, in_process=True)
    with pytest.raises(InputError, match=r"input_ids\[1,8\].*: Add 'add': Incompatible"):
        tracer.count(proto, prefill=8, in_process=True)


def test_sizes_that_the_model_fixes_are_told(file):
    with pytest.raises(InputError, match="the batch is 2, not 3"):
        tracer.count(grouped(batch=2), batch=3, prefill=4, in_process=True)
    with pytest.raises(InputError, match="takes 8 past tokens, not 0"):
        tracer.count(grouped(past=8), prefill=4, in_process=True)
    with pytest.raises(ModelError, match="has no input of tokens"):
        tracer.profile("models/lenet/lenet.onnx", prefill=4, decode=2, in_process=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decode": 4}, "no prefill"),
        ({"prefill": 4, "past": 3}, "no decode steps"),
        ({"prefill": 4, "dims": {"batch": 2}}, "dims are set beside the phases"),
        ({"prefill": 0}, "prefill is 0"),
        ({"prefill": 4, "decode": 2, "past": -1}, "past is -1"),
    ],
)
def test_arguments_that_contradict_each_other(file, arguments, message):
    with pytest.raises(UsageError, match=message):
        tracer.count(file, **arguments, in_process=True)


@examples(30)
@given(
    st.lists(st.integers(0, 4000), min_size=3, max_size=8, unique=True),
    st.floats(1, 1e4), st.floats(0, 10), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_line_is_that_of_numpy(pasts, constant, slope, seed):
    errors = np.random.default_rng(seed).uniform(0.5, 2, len(pasts))
    noise = np.random.default_rng(seed + 1).normal(0, errors)
    times = constant + slope * np.array(pasts) + noise
    fit = line(None, pasts, times.tolist(), errors.tolist())
    expected, covariance = np.polyfit(pasts, times, 1, w=1 / errors, cov="unscaled")
    assert fit.slope_us == pytest.approx(expected[0], rel=1e-4, abs=1e-6)
    assert fit.constant_us == pytest.approx(expected[1], rel=1e-4, abs=1e-4)
    assert fit.slope_plus_minus >= 1.959 * covariance[0, 0] ** 0.5 * (1 - 1e-4)


def test_two_points_have_the_uncertainty_of_their_times():
    fit = line("a", [0, 100], [10.0, 20.0], [1.0, 1.0])
    assert (fit.constant_us, fit.slope_us) == pytest.approx((10, 0.1))
    assert fit.slope_plus_minus == pytest.approx(1.96 * 2**0.5 / 100)
    assert line("a", [0], [10.0], [1.0]) is None


@pytest.mark.nightly
@pytest.mark.needs("torch", "transformers")
def test_a_llama_of_transformers_has_the_work_of_the_formulas(tmp_path):
    path = decoders.llama(tmp_path / "llama.onnx")
    counted = tracer.count(path, prefill=12, decode=6, past=(5, 30), in_process=True).nodes
    products = counted[~counted["node"].str.contains("rotary")]
    sums = products.groupby(["phase", "past"])["macs"].sum()
    for phase, past in sums.index:
        assert sums[phase, past] == macs(1, 12 if phase == "prefill" else 1, past)
    decoder = recognise(open_model(path))
    tokens = decoder.feeds(Step(1, 9, 0), 0)["input_ids"]
    outputs = []
    executor = registry.find_stepping("onnxruntime")
    with executor.stepping(decoder.model, registry.settings_for("onnxruntime", {})) as run:
        generate(decoder, run, tokens, Step(1, 5, 0), lambda us: None, outputs.append)
        steps = np.concatenate([each["logits"].numpy() for each in outputs], axis=1)
        generate(decoder, run, tokens, Step(1, 9, 0), lambda us: None, outputs.append)
    np.testing.assert_allclose(steps, outputs[-1]["logits"].numpy(), rtol=0, atol=2e-5)


def test_a_cache_whose_length_is_an_input_is_counted():
    """Nothing but the phase tells how long the present is: `total` is no symbol of an input."""

    def edit(graph):
        for value in graph.output:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "total_sequence_length":
                    dim.dim_param = "of_nothing_else"
        del graph.value_info[:]

    counted = tracer.count(edited(edit), prefill=4, decode=2, past=7, in_process=True).nodes
    assert counted.groupby("past")["macs"].sum()[7] == macs(1, 1, 7)
