"""A machine's fingerprint is replayed elsewhere; files that are none, or damaged, are refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tracer
from tests.arithmetic import tutorial
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.arithmetic import fingerprint, runs
from tracer.arithmetic.replays import conv
from tracer.cli import main
from tracer.errors import InputError, TracerError
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.inputs.request import make_feeds
from tracer.records import environment
from tracer.records.bits import BitComparison, OutputDifference, SideBits

MODELS = Path(__file__).parents[2] / "models"
LENET = MODELS / "lenet/lenet.int8.onnx"
AVX2 = Path(__file__).with_name("avx2.json")
needs_vnni = pytest.mark.skipif(
    not environment.adds_bytes_exactly(environment.cpu_flags()),
    reason="this processor adds in pairs that saturate, as the other one does",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("fingerprint") / "cpu.json"
    return tracer.fingerprint([LENET], threads=1, in_process=True).save(path)


def test_the_fingerprint_of_this_machine_has_its_outputs(file, capsys):
    assert main(["compare", str(LENET), "--machine", str(file), "--fail-unless-equal"]) == 0
    shown = capsys.readouterr().out
    assert "nodes have equal bits" in shown
    assert "the replay has the SHA-256 of the outputs" in shown


def test_a_fingerprint_is_no_side(file, capsys):
    assert main(["compare", str(file), str(file)]) == 3
    assert f"Compare with it: tracer compare MODEL --machine {file}" in capsys.readouterr().err


def test_no_weights_are_in_the_file(file):
    (print_,) = json.loads(file.read_text())["models"]
    largest = [c for c in print_["constants"].values() if np.prod(c["shape"]) > 10_000]
    assert largest and all(c["source"] and "data" not in c for c in largest)


def test_the_sha256_of_the_outputs_is_that_of_a_session(file):
    print_ = fingerprint.read(file).models[0]
    model = loading.load(LENET)
    outputs = runs.outputs_of(model, OrtSettings(threads=1))(fingerprint.feeds_of(print_, model))
    assert fingerprint.digests(outputs) == print_.outputs


@pytest.mark.parametrize("level", ["extended", "all"])
def test_weights_follow_from_those_of_lower_levels(level):
    """onnxruntime reorders them for blocks of channels, and folds normalisations into them."""
    model = loading.load(MODELS / "resnet_cifar/resnet20.onnx")
    settings = OrtSettings(optimization=level, threads=1)
    pool = fingerprint.pool_of(model, settings)
    for value in runs.SavedGraph.of(model, settings).constants.values():
        recipe = fingerprint.recipe_of(value, pool)
        assert recipe.source
        assert fingerprint.follow(recipe, pool).tobytes() == value.tobytes()


@pytest.mark.parametrize("block", [8, 16])
def test_weights_in_blocks_of_another_processor_are_recipes(block):
    weights = np.random.default_rng(0).standard_normal((20, 32, 3, 3)).astype(np.float32)
    padded = np.zeros((-(-20 // block) * block, 32, 3, 3), np.float32)
    padded[:20] = weights
    pool = fingerprint.by_digest([weights])
    blocks = _blocked(padded, block)
    assert np.array_equal(conv.weights_from_blocks(blocks, block), padded)
    recipe = fingerprint.recipe_of(blocks, pool)
    assert (recipe.block, recipe.inner) == (block, block)
    assert fingerprint.follow(recipe, pool).tobytes() == blocks.tobytes()


def _blocked(weights, block):
    """Returns weights in blocks, element by element."""
    maps, channels, height, width = weights.shape
    out = np.empty((maps // block, channels // block, height, width, block, block), "f")
    for m, c, y, x in np.ndindex(weights.shape):
        out[m // block, c // block, y, x, c % block, m % block] = weights[m, c, y, x]
    return out.reshape(weights.shape)


def damage(document, change):
    (print_,) = document["models"]
    constant = next(c for c in print_["constants"].values() if c.get("source"))
    match change:
        case "format":
            document["format"] = 99
        case "graph":
            print_["graph"] = print_["graph"][:40]
        case "rules":
            print_["nodes"][0] = 10_000
        case "digest":
            constant["sha256"] = "0" * 64
        case "shape":
            constant["shape"] = [1 << 40]
        case "source":
            constant["source"] = "0" * 64
        case "inputs":
            print_["inputs"] = dict.fromkeys(print_["inputs"], "0" * 64)
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("format", "Use the same release of tracer"),
        ("graph", "Make it anew"),
        ("rules", "Make it anew"),
        ("digest", "Make it anew"),
        ("shape", "Make it anew"),
        ("source", "Compare another model"),
        ("inputs", "Install the release of numpy"),
    ],
)
def test_a_damaged_file_is_refused_with_what_to_do(file, tmp_path, change, words):
    other = tmp_path / "other.json"
    other.write_text(damage(json.loads(file.read_text()), change))
    with pytest.raises(InputError) as error:
        tracer.compare_bits([LENET], machine=other, in_process=True)
    assert words in str(error.value) + (error.value.hint or "")


def test_sizes_that_do_not_run_are_told_by_the_names_of_the_model(tmp_path):
    """A model takes 64 tokens at most; another one no usual size, which the error tells."""
    stored = {"table": np.ones((64, 8), np.float32), "zero": np.zeros(1, np.int64)}
    stored |= {"words": stored["table"], "sizes": np.array([3, 5])}
    short = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "n"], ["rows"]),
        helper.make_node("Gather", ["words", "x"], ["read"]),
        helper.make_node("Add", ["read", "rows"], ["y"], name="positions"),
    ]
    fixed = [helper.make_node("Reshape", ["x", "sizes"], ["y"], name="shaped")]
    for name, nodes, dtype in (("short", short, "FLOAT"), ("fixed", fixed, "INT64")):
        x = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, [1, "tokens"])
        y = helper.make_tensor_value_info("y", onnx.TensorProto.DataType.Value(dtype), None)
        weights = [numpy_helper.from_array(value, key) for key, value in stored.items()]
        graph = helper.make_graph(nodes, name, [x], [y], weights)
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.save(model, tmp_path / f"{name}.onnx")
    (print_,) = tracer.fingerprint([tmp_path / "short.onnx"], threads=1, in_process=True).models
    feeds = fingerprint.feeds_of(print_, loading.load(tmp_path / "short.onnx"))
    assert feeds["x"].shape[1] <= 64
    with pytest.raises(TracerError, match=r"fixed\.onnx .*Name:'shaped'.*"):
        tracer.fingerprint([tmp_path / "fixed.onnx"], threads=1, in_process=True)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"models": []}', "\x00"])
def test_a_file_that_is_no_fingerprint_is_refused(tmp_path, content):
    path = tmp_path / "cpu.json"
    path.write_text(content)
    with pytest.raises(InputError, match="no fingerprint"):
        fingerprint.read(path)


def test_a_model_that_the_file_lacks_is_named(file):
    with pytest.raises(InputError, match=r"has no model with the content of lenet\.onnx"):
        tracer.compare_bits([MODELS / "lenet/lenet.onnx"], machine=file, in_process=True)


def test_sides_of_another_runtime_are_refused(capsys):
    assert main(["compare", f"{LENET}@interpreter", str(LENET), "--bits"]) == 2
    assert "onnxruntime runs on the CPU" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_batch_and_its_first_sample_are_compared(tmp_path):
    """Row 0 alone and in a batch of 8 differ: a product of one row has a kernel of its own."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[n, 512] x, float[512, 64] w) => (float[n, 64] y) { y = MatMul(x, w) }""")
    path = tmp_path / "rows.onnx"
    onnx.save(model, path)
    result = tracer.compare_bits([path], batches=[1, 8], in_process=True)
    (side,) = result.sides
    assert side.first is not None
    assert side.outputs[0].equal < side.outputs[0].size == 64
    same = tracer.compare_bits([path], batches=[8, 8], in_process=True)
    assert same.is_equal


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind hides AVX-512 and VNNI")
def test_a_processor_with_other_kernels_is_replayed_here(tmp_path):
    """valgrind tells onnxruntime of a processor that has AVX2 and no more."""
    path, model = tmp_path / "avx2.json", MODELS / "lenet/lenet.onnx"
    command = ["valgrind", "--tool=none", "-q", sys.executable, "-m", "tracer", "fingerprint"]
    options = ["--threads", "1", "--max-probe-seconds", "900", "-o", str(path)]
    subprocess.run([*command, str(model), *options], check=True, env=dict(os.environ))
    assert "AVX2" in fingerprint.read(path).instructions
    (side,) = tracer.compare_bits([model], machine=path, in_process=True).sides
    assert side.exact
    assert side.is_equal or side.first.causes


def test_a_processor_whose_pairs_saturate_is_replayed_here():
    """The file was made on a processor with AVX2 and no more (valgrind's)."""
    (side,) = tracer.compare_bits([LENET], machine=AVX2, in_process=True).sides
    assert side.exact
    if environment.adds_bytes_exactly(environment.cpu_flags()):
        assert (side.first.node, side.first.causes) == ("node_Conv_22", ("saturation of pairs",))
        assert side.outputs[0].equal < side.outputs[0].size


@needs_vnni
def test_another_release_on_the_same_processor_is_told(tmp_path):
    here = tracer.fingerprint([LENET], threads=1, in_process=True)
    other = json.loads(AVX2.read_text())
    other |= {"processor": here.processor, "instructions": here.instructions}
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other | {"onnxruntime": "1.0.0"}))
    (side,) = tracer.compare_bits([LENET], machine=path, in_process=True).sides
    assert "onnxruntime 1.0.0" in side.side
    assert side.first.cause == "release of onnxruntime: saturation of pairs"
    path.write_text(json.dumps(other | {"onnxruntime": here.onnxruntime}))
    (side,) = tracer.compare_bits([LENET], machine=path, in_process=True).sides
    assert side.first.cause == "saturation of pairs"


@needs_vnni
def test_the_class_of_one_image_is_another_on_that_processor():
    model, (print_,) = loading.load(LENET), fingerprint.read(AVX2).models
    image = {"x": tutorial.digit(model)}
    there = fingerprint.OtherMachine.of(model, print_)
    outputs = [
        runs.outputs_of(model, OrtSettings(threads=1))(image),
        runs.replay_graph(there.graph, there.rule_of, image).outputs,
    ]
    assert [int(each["linear_2"].argmax()) for each in outputs] == [9, 4]


@pytest.mark.nightly
@needs_vnni
def test_the_page_shows_what_the_commands_print(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert tutorial.block() in tutorial.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fail-unless-equal"], "is for bits"),
        (["--bits", "--fail-above", "5%"], "--fail-above is not for bits"),
        (["--bits", "--sessions", "4"], "--sessions is not for bits"),
        (["--bits", "--by", "op"], "--by is not for bits"),
        (["--bits", "--rtol", "1e-3"], "--rtol is not for bits"),
        (["--bits"], "one side alone"),
    ],
)
def test_what_bits_have_no_use_for_is_refused(capsys, options, words):
    assert main(["compare", str(LENET), *options]) == 2
    assert words in capsys.readouterr().err


def test_as_many_outputs_are_shown_as_are_asked_for():
    outputs = tuple(OutputDifference(f"y{n}", 1, 2) for n in range(20))
    result = BitComparison("A", (SideBits("B", 3, None, outputs),))
    assert len(result.to_pandas(ViewOptions(top=3))) == 3
    assert render(result, "md", ViewOptions(top=5)).count(b"50.00%") == 5


SEQUENCE = """<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 3]>
g (float[4,2] x) => (seq(float[2,2]) halves, seq(map(string, float)) named) {
  bound = Constant <value_float = BOUND> ()
  y = Max (x, bound)
  two = Constant <value_int = 2> ()
  halves = SplitToSequence (y, two)
  named = ai.onnx.ml.ZipMap <classlabels_strings = ["b", "a"]> (y)
}"""


def test_sequences_maps_and_text_are_compared_by_what_they_hold(tmp_path):
    """Of the bytes of Python objects every run would have others."""
    for name, bound in (("a", "-9.0"), ("b", "0.5")):
        proto = onnx.parser.parse_model(SEQUENCE.replace("BOUND", bound))
        onnx.save(proto, tmp_path / f"{name}.onnx")
    file = tracer.fingerprint([tmp_path / "a.onnx"], in_process=True).save(tmp_path / "m.json")
    (same,) = tracer.compare_bits([tmp_path / "a.onnx"], machine=file, in_process=True).sides
    assert same.exact and same.is_equal
    both = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    (other,) = tracer.compare_bits(both, in_process=True).sides
    x = make_feeds(loading.load(tmp_path / "a.onnx")).feeds["x"]
    changed = int((x < 0.5).sum())
    for output, size in zip(other.outputs, (8, 16), strict=True):  # a map has keys and values
        assert (output.size, output.size - output.equal) == (size, changed)
        assert output.largest == np.abs(np.maximum(x, np.float32(0.5)) - x).max()


def test_a_sparse_weight_is_replayed(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[3,4] x) => (float[3,2] y) { y = MatMul (x, w) }""")
    values, places = np.array([5, 7], np.float32), np.array([1, 6])
    stored = [onnx.numpy_helper.from_array(*each) for each in ((values, "w"), (places, "at"))]
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(*stored, [4, 2]))
    onnx.save(model, tmp_path / "m.onnx")
    (output,) = tracer.replay(tmp_path / "m.onnx", in_process=True).outputs
    assert output.sha256 == output.replayed


BODY = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 16] x, bool flag) => (float[2, 16] y, float[2, 16] z)
<float[16, 16] w = {%s}> {
  n = Constant<value_int = 3>()  t = Constant<value = bool {1}>()
  y = Loop(n, t, x) <body = b (int64 i, bool k, float[2, 16] s) => (bool l, float[2, 16] o)
    { l = Identity(k)  m = MatMul(s, w)  o = %s(m) }>
  z = If(flag) <then_branch = f () => (float[2, 16] p) { p = MatMul(y, w) },
                else_branch = e () => (float[2, 16] q) { q = Neg(y) }>
}"""


def in_bodies(operator):
    """A Loop and an If whose bodies read a weight of the graph around them."""
    weights = np.random.default_rng(0).standard_normal(256) / 4
    return onnx.parser.parse_model(BODY % (", ".join(map(str, weights)), operator))


def test_bodies_that_read_weights_around_them_are_replayed_by_the_rules_of_their_nodes(tmp_path):
    onnx.save(in_bodies("Tanh"), tmp_path / "a.onnx")
    found = tracer.fingerprint([tmp_path / "a.onnx"], threads=1, in_process=True)
    (print_,) = found.models
    assert print_.known_rules == len(print_.nodes) and ("m",) in dict(print_.inner)
    file = found.save(tmp_path / "here.json")
    (side,) = tracer.compare_bits([tmp_path / "a.onnx"], machine=file, in_process=True).sides
    assert side.exact and side.is_equal


def test_what_differs_in_a_body_is_told(tmp_path):
    sides = [in_bodies("Tanh"), in_bodies("Relu")]
    (side,) = tracer.compare_bits(sides, threads=[1], in_process=True).sides
    assert (side.first.op_type, side.first.cause) == ("Loop", "another operator in its body")


def test_weights_in_half_precision_follow_from_those_of_the_model(tmp_path):
    weights = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float16)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, [1, count, 16, 16])
            for name, count in (("x", 16), ("y", 32)))  # fmt: skip
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
              tmp_path / "half.onnx")  # fmt: skip
    file = tracer.fingerprint([tmp_path / "half.onnx"], threads=1, in_process=True).save(
        tmp_path / "here.json"
    )
    (side,) = tracer.compare_bits([tmp_path / "half.onnx"], machine=file, in_process=True).sides
    assert side.exact and side.is_equal


def test_results_whose_number_depends_on_the_data_differ_at_the_node_that_makes_them():
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 64] x) => (float[1, 1] y) <int64[1] low = {0}, int64[1] high = {%d}, int64[1] axis = {1}>
    { r = Relu(x)  c = Slice(r, low, high, axis)  y = ReduceMean<axes = [1]>(c) }"""  # noqa: E501
    sides = [onnx.parser.parse_model(text % high) for high in (10, 20)]
    (side,) = tracer.compare_bits(sides, threads=[1], in_process=True).sides
    assert (side.first.op_type, side.first.cause, side.first.equal) == ("Slice", "stored values", 0)
