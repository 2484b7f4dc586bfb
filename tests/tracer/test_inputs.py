import os

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import tracer.cli
from tests.graphs import embedding, parse, residual
from tracer.errors import InputError, LimitError, UsageError
from tracer.graph import loading
from tracer.inputs.feedset import check_feeds, read_arrays
from tracer.inputs.request import make_feeds
from tracer.limits import Limits, enforced


def test_the_same_seed_gives_the_same_feeds_and_another_gives_others():
    model = loading.from_proto(residual())
    first, again, other = (make_feeds(model, seed=seed).feeds["x"] for seed in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (1, 3, 16, 16)
    assert first.dtype == np.float32


def test_a_batch_replaces_the_symbolic_dimension():
    feedset = make_feeds(loading.from_proto(residual()), batch=7)
    assert feedset.feeds["x"].shape == (7, 3, 16, 16)
    assert feedset.batch == 7


def test_indices_stay_inside_their_table_and_masks_are_ones():
    feedset = make_feeds(loading.from_proto(embedding(rows=30)), dims={"sequence": 500})
    ids = feedset.feeds["ids"]
    assert ids.shape == (1, 500)
    assert 0 <= ids.min() < 5 < 25 < ids.max() < 30
    assert (feedset.feeds["attention_mask"] == 1).all()


def test_an_assumed_dimension_is_told():
    feedset = make_feeds(loading.from_proto(embedding()))
    assert feedset.feeds["ids"].shape == (1, 128)
    assert feedset.notes[0].startswith("sizes chosen: ids[1,128] (tokens), attention_mask[1,128]")
    assert feedset.notes[0].endswith("change them with --dim sequence=128")


def test_indices_stay_inside_a_table_whose_size_is_computed():
    """The first rows of a table, as many as a quarter of the features: one row."""
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]>
        g (int64[N,5] ids, float[N,4] x) => (float[N,5,3] y) {
          shape = Shape (x)
          features = Slice (shape, one, two)
          rows = Div (features, four)
          part = Slice (table, zero, rows, zero)
          y = Gather (part, ids)
        }""",
        zero=np.array([0]), one=np.array([1]), two=np.array([2]), four=np.array([4]),
        table=np.ones((9, 3), np.float32),
    )  # fmt: skip
    feeds = make_feeds(loading.from_proto(proto)).feeds
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (output,) = session.run(None, dict(feeds))  # refuses an index out of range
    assert output.shape == (1, 5, 3)


def test_indices_are_followed_through_operators_that_hand_them_on():
    text = """
    <ir_version: 8, opset_import: ["": 16]>
    g (float[N,4] data, int32[N,400] picks) => (float[N,400] y) {
      i = Cast <to = 7> (picks)
      y = GatherElements <axis = 1> (data, i)
    }
    """
    picks = make_feeds(loading.from_proto(parse(text))).feeds["picks"]
    assert (picks.min(), picks.max()) == (0, 3)


OPTIONAL = """
<ir_version: 8, opset_import: ["": 18]>
g (float[N,4] x, optional(float[N,4]) o) => (float[N,4] y) {
  has = OptionalHasElement (o)
  p = If (has) <
    then_branch = given () => (float[N,4] t) { t = OptionalGetElement (o) },
    else_branch = absent () => (float[N,4] e) { e = Neg (x) }
  >
  y = Exp (p)
}
"""


def test_an_optional_input_is_absent_unless_it_is_set(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    proto = onnx.parser.parse_model(OPTIONAL)
    onnx.save(proto, "net.onnx")
    feedset = make_feeds(loading.from_proto(proto))
    assert feedset.feeds["o"] is None and "without the optional 'o'" in feedset.notes[-1]
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (output,) = session.run(None, dict(feedset.feeds))
    assert np.allclose(output, np.exp(-feedset.feeds["x"]))
    for command in (
        ("profile", "net.onnx", "--runs", "1"), ("interpret", "net.onnx", "--against", "ort"),
        ("fusions", "net.onnx"), ("diff", "net.onnx", "net.onnx"), ("fingerprint", "net.onnx"),
        ("compare", "net.onnx", "--bits", "--batch", "1,2"),
    ):  # fmt: skip
        assert tracer.cli.main([*command]) == 0, capfd.readouterr().err


def test_an_unknown_dimension_and_a_fixed_batch_are_refused():
    model = loading.from_proto(residual())
    with pytest.raises(
        InputError, match=r"no open dimension 'M'.*Its open dimensions are N \(x:0\)"
    ):
        make_feeds(model, dims={"M": 3})
    proto = residual()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    fixed = loading.from_proto(proto)
    assert make_feeds(fixed, batch=1).batch == 1
    with pytest.raises(InputError, match=r"no open dimension 'M'. .*are all fixed: leave --dim"):
        make_feeds(fixed, dims={"M": 3})
    with pytest.raises(InputError, match="the batch is 1, not 2"):
        make_feeds(fixed, batch=2)


def test_a_batch_and_a_dim_of_the_same_name_contradict_each_other():
    with pytest.raises(UsageError, match="'N' is the batch"):
        make_feeds(loading.from_proto(residual()), batch=2, dims={"N": 3})
    assert make_feeds(loading.from_proto(residual()), dims={"N": 3}).batch == 3


def test_feeds_are_read_from_npz(tmp_path):
    x = np.random.default_rng(0).random((2, 3, 16, 16), np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    feedset = make_feeds(loading.from_proto(residual()), path=tmp_path / "x.npz")
    assert np.array_equal(feedset.feeds["x"], x)
    assert feedset.batch == 2


def test_feeds_are_read_from_a_test_data_set(tmp_path):
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    x = np.ones((3, 3, 16, 16), np.float32)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for path in (folder, tmp_path):
        assert np.array_equal(make_feeds(loading.from_proto(residual()), path=path).feeds["x"], x)
    (folder / "input_0.pb").write_bytes(b"\xff\xff\xff")
    with pytest.raises(InputError, match=r"input_0\.pb: does not hold input 'x'"):
        make_feeds(loading.from_proto(residual()), path=folder)


WRONG_FEEDS = {
    "shape": ({"x": np.ones((1, 3, 16, 15), np.float32)}, "16, not 15. Change the input's shape"),
    "rank": ({"x": np.ones((3, 16, 16), np.float32)}, "has 3 dimensions"),
    "dtype": ({"x": np.ones((1, 3, 16, 16))}, r"float32\[N,3,16,16\], but float64 was fed"),
    "name": ({"z": np.ones(1, np.float32)}, "x missing.*inputs are x"),
    "surplus": ({"x": np.ones((1, 3, 16, 16), np.float32), "z": np.ones(1)}, "z unknown"),
    "object": ({"x": np.array([{}], dtype=object)}, "not an .npz file of plain arrays"),
}


@pytest.mark.parametrize(("arrays", "message"), WRONG_FEEDS.values(), ids=WRONG_FEEDS)
def test_feeds_that_do_not_fit_are_refused_by_name(arrays, message, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InputError, match=rf"x\.npz: .*{message}"):
        make_feeds(loading.from_proto(residual()), path=tmp_path / "x.npz")


def test_a_batch_together_with_a_file_is_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((1, 3, 16, 16), np.float32))
    with pytest.raises(UsageError, match="shapes decide"):
        make_feeds(loading.from_proto(residual()), batch=2, path=tmp_path / "x.npz")


@pytest.mark.parametrize(
    "dtype",
    [
        "float",
        "float16",
        "bfloat16",
        "double",
        "bool",
        "uint8",
        "int8",
        "int32",
        "uint64",
        "string",
        "float8e4m3fn",
        "int4",
    ],
)
def test_every_element_type_gets_feeds_of_that_type(dtype):
    text = f'<ir_version: 11, opset_import: ["": 23]> g ({dtype}[N,3] x) => ({dtype}[N,3] y)'
    model = loading.from_proto(onnx.parser.parse_model(text + " { y = Identity (x) }"))
    feedset = make_feeds(model, batch=2)
    check_feeds(model, feedset.feeds)
    assert feedset.feeds["x"].shape == (2, 3)


def test_random_feeds_are_drawn_in_blocks_and_within_the_limits(monkeypatch):
    head = '<ir_version: 8, opset_import: ["": 17]> '
    text = head + "g (float16[7,3] x, uint8[19] b) => (float16[7,3] y) { y = Neg (x) }"
    model = loading.from_proto(onnx.parser.parse_model(text))
    whole = make_feeds(model).feeds
    rng = np.random.default_rng(0)
    assert np.array_equal(whole["x"], rng.random((7, 3)).astype(np.float16))
    assert np.array_equal(whole["b"], rng.integers(0, 255, 19, np.uint8, endpoint=True))
    monkeypatch.setattr("tracer.inputs.feedset._BLOCK", 8)
    for name, array in make_feeds(model).feeds.items():
        assert np.array_equal(array, whole[name])
    with enforced(Limits(live_bytes=60)), pytest.raises(LimitError, match=r"input 'b'.*61 B"):
        make_feeds(model)


def test_data_in_other_files_and_endless_files_are_refused(tmp_path):
    model = loading.from_proto(residual())
    file = tmp_path / "input_0.pb"
    tensor = onnx.TensorProto(data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    file.write_bytes(tensor.SerializeToString())
    with pytest.raises(InputError, match=r"input_0.pb.*another file"):
        make_feeds(model, path=tmp_path)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match=r"input_0.pb: not a regular file"):
        make_feeds(model, path=tmp_path)


def test_an_archive_is_not_unpacked_unless_it_fits(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1, 3, 16, 17), np.float32))
    with pytest.raises(InputError, match="dimension 3 is fixed at 16"):
        make_feeds(loading.from_proto(residual()), path=tmp_path / "x.npz")
    with enforced(Limits(tensor_bytes=1000)), pytest.raises(LimitError, match=r"3.2 KiB"):
        read_arrays(tmp_path / "x.npz")
