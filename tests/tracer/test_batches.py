"""Inputs from many files, a batch at a time."""

from operator import length_hint

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.graphs import parse
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_batches
from tracer.inputs.request import Request


def model(batch="N", extra=""):
    text = f"""
    <ir_version: 8, opset_import: ["": 16]>
    g (float[{batch},3] x{extra}) => (float[{batch},3] y) {{ y = Relu (x) }}
    """
    return loading.from_proto(parse(text))


def saved(path, rows, start=0):
    x = np.arange(start * 3, (start + rows) * 3, dtype=np.float32).reshape(rows, 3)
    np.savez(path, x=x)
    return path


def data_set(folder, rows, start=0):
    folder.mkdir(parents=True)
    x = np.arange(start * 3, (start + rows) * 3, dtype=np.float32).reshape(rows, 3)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())


def rows(batches):
    return [feedset.feeds["x"][:, 0].astype(int).tolist() for feedset in batches]


def test_an_archive_is_cut_into_batches(tmp_path):
    batches = open_batches(model(), [saved(tmp_path / "f.npz", 5)], 2)
    assert rows(batches) == [[0, 3], [6, 9], [12]]
    assert [feedset.batch for feedset in batches] == [2, 2, 1]
    assert length_hint(batches) == 3
    assert rows(batches) == rows(batches)  # it can be gone through again


@pytest.mark.parametrize(("batch", "count"), [(None, 1), (5, 1), (9, 1), (1, 5)])
def test_a_batch_that_is_as_large_as_the_file_is_the_file(tmp_path, batch, count):
    batches = open_batches(model(), [saved(tmp_path / "f.npz", 5)], batch)
    assert length_hint(batches) == len(list(batches)) == count


def test_a_fixed_batch_cuts_without_being_asked(tmp_path):
    batches = open_batches(model(2), [saved(tmp_path / "f.npz", 6)])
    assert rows(batches) == [[0, 3], [6, 9], [12, 15]]


def test_a_fixed_batch_that_leaves_rows_is_filled_up_and_says_so(tmp_path):
    batches = open_batches(model(2), [saved(tmp_path / "f.npz", 5)])
    assert rows(batches) == [[0, 3], [6, 9], [12, 12]]
    *_, whole, last = batches
    assert (len(whole.notes), len(last.notes)) == (1, 2)
    assert "the model takes 2 rows; the last batch has 1" in last.notes[1]


def test_folders_of_data_sets_are_read_in_the_order_of_their_numbers(tmp_path):
    for place in (0, 2, 10):
        data_set(tmp_path / "all" / f"test_data_set_{place}", 1, place)
    assert rows(open_batches(model(), [tmp_path / "all"])) == [[0], [6], [30]]
    saved(tmp_path / "more.npz", 1, 100)
    batches = open_batches(model(), [tmp_path / "all" / "test_data_set_2", tmp_path / "more.npz"])
    assert rows(batches) == [[6], [300]]
    more = open_batches(model(), [saved(tmp_path / "a.npz", 3), tmp_path / "more.npz"], 2)
    assert next(iter(more)).notes[0].endswith("in 3 batches")


def test_folders_of_archives_are_read_too(tmp_path):
    saved(tmp_path / "a.npz", 2)
    saved(tmp_path / "b.npz", 1, 7)
    assert rows(open_batches(model(), [tmp_path], 1)) == [[0], [3], [21]]


def test_inputs_that_have_no_rows_go_with_every_batch(tmp_path):
    np.savez(tmp_path / "f.npz", x=np.ones((4, 3), np.float32), k=np.arange(9, dtype=np.int64))
    batches = list(open_batches(model(extra=", int64[9] k"), [tmp_path / "f.npz"], 2))
    assert [feedset.feeds["k"].shape for feedset in batches] == [(9,), (9,)]


def test_only_the_batch_is_cut(tmp_path):
    np.savez(
        tmp_path / "f.npz",
        x=np.ones((4, 3), np.float32), n=np.arange(4), s=np.ones((6, 4), np.float32),
    )  # fmt: skip
    some = model("batch", extra=", int64[batch] n, float[steps,batch] s")
    (whole,) = open_batches(some, [tmp_path / "f.npz"], 2)  # the batch of `s` is not its first axis
    assert (whole.feeds["s"].shape, whole.feeds["x"].shape) == ((6, 4), (4, 3))
    np.savez(tmp_path / "g.npz", x=np.ones((4, 3), np.float32), n=np.arange(4))
    batches = list(open_batches(model("batch", extra=", int64[batch] n"), [tmp_path / "g.npz"], 2))
    assert [feedset.feeds["n"].tolist() for feedset in batches] == [[0, 1], [2, 3]]


def test_inputs_with_different_numbers_of_rows_are_refused(tmp_path):
    np.savez(tmp_path / "f.npz", x=np.ones((4, 3), np.float32), z=np.ones((6, 3), np.float32))
    with pytest.raises(InputError, match="different numbers of rows: 'x' has 4, 'z' has 6"):
        open_batches(model(extra=", float[N,3] z"), [tmp_path / "f.npz"], 2)


def test_what_holds_no_inputs_is_said_to(tmp_path):
    with pytest.raises(InputError, match="holds no inputs"):
        open_batches(model(), [tmp_path])
    with pytest.raises(InputError, match="no such inputs"):
        list(open_batches(model(), [tmp_path / "nowhere"]))
    (tmp_path / "x.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"x\.npz: not an \.npz file"):
        open_batches(model(), [tmp_path / "x.npz"])


def test_a_later_file_that_does_not_fit_is_named(tmp_path):
    first = saved(tmp_path / "a.npz", 1)
    np.savez(tmp_path / "b.npz", x=np.ones((1, 4), np.float32))
    with pytest.raises(InputError, match=r"b\.npz: input 'x'"):
        open_batches(model(), [first, tmp_path / "b.npz"])


def test_one_inference_takes_one_file(tmp_path):
    paths = (saved(tmp_path / "a.npz", 1), saved(tmp_path / "b.npz", 1))
    with pytest.raises(UsageError, match="2 inputs are named for one inference"):
        Request(model(), paths=paths).feeds()
    assert len(list(Request(model(), paths=paths).batches())) == 2
    with pytest.raises(UsageError, match="own shapes decide"):
        Request(model(), paths=paths, dims={"N": 3}).batches()


def test_random_inputs_are_one_batch():
    (feedset,) = Request(model(), batch=4).batches()
    assert feedset.feeds["x"].shape == (4, 3)


def test_a_folder_with_a_model_brings_its_first_data_set(tmp_path):
    onnx.save(model().proto, tmp_path / "model.onnx")
    data_set(tmp_path / "test_data_set_0", 2)
    assert Request(model(), folder=tmp_path).feeds().batch == 2
    assert Request(model(), folder=tmp_path, batch=5).feeds().batch == 5
