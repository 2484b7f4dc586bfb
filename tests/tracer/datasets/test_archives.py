"""Samples in .npz files, against numpy."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from tests.tracer.datasets.sets import images, model, table, whole
from tracer.errors import InputError
from tracer.inputs.datasets.opening import open_dataset


def test_an_archive_is_read_in_pieces(tmp_path, monkeypatch):
    """No read of a member asks for more than a batch of its rows."""
    path = table(tmp_path, np.savez_compressed, x=np.zeros((1000, 3), np.float32))
    asked = []
    read = zipfile.ZipExtFile.read
    monkeypatch.setattr(
        zipfile.ZipExtFile, "read", lambda s, n=-1: (asked.append(n), read(s, n))[1]
    )
    assert sum(b.size for b in open_dataset(path, model()).batches(10)) == 1000
    assert 0 <= min(asked) <= max(asked) <= 1000  # a header, or ten rows of three floats


def test_members_for_testing_come_with_their_labels(tmp_path):
    x = np.random.default_rng(0).random((5, 3), np.float32)
    path = table(tmp_path, x=x, labels=np.arange(5), x_test=x[:2], labels_test=np.array([8, 9]))
    values, labels = whole(open_dataset(path, model()).batches(9))
    np.testing.assert_array_equal(values, x[:2])
    assert labels.tolist() == [8, 9]
    assert open_dataset(path, model(), split="train").samples == 5
    assert open_dataset(f"{path}:train", model()).samples == 5


def test_y_is_labels_unless_it_is_the_output(tmp_path):
    x = np.zeros((4, 3), np.float32)
    (batch,) = open_dataset(table(tmp_path, x=x, y=np.arange(4)), model()).batches(4)
    assert (batch.labels.tolist(), batch.outputs) == ([0, 1, 2, 3], None)
    (batch,) = open_dataset(table(tmp_path, x=x, y=x + 1, labels=np.ones(4)), model()).batches(4)
    np.testing.assert_array_equal(batch.outputs["y"], x + 1)
    assert batch.labels.tolist() == [1] * 4


def test_pixels_are_prepared_and_floats_are_taken_as_they_are(tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (2, 28, 28), np.uint8)
    values, _ = whole(open_dataset(table(tmp_path, x=grey), images()).batches(2))
    assert (values.shape, values.dtype) == ((2, 3, 32, 32), np.float32)
    assert 0 <= values.min() < values.max() <= 1
    small = table(tmp_path, x=np.zeros((2, 3, 28, 28), np.float32))
    with pytest.raises(
        InputError, match=r"set.npz: input 'x' .* dimension 2 is fixed at 32, not 28"
    ):
        open_dataset(small, images())
    raw, _ = whole(
        open_dataset(
            table(tmp_path, x=grey[:, None]), images(shape="1,28,28", dtype="uint8")
        ).batches(1)
    )
    np.testing.assert_array_equal(raw[:, 0], grey)


def test_an_input_that_belongs_to_all_samples_is_in_every_batch(tmp_path):
    loaded = model("float[N,3] x, float[1,3] scale", "float[N,3] y", "y = Mul (x, scale)")
    path = table(tmp_path, x=np.ones((5, 3), np.float32), scale=np.ones((1, 3), np.float32))
    for batch in open_dataset(path, loaded).batches(2):
        assert batch.inputs["scale"].shape == (1, 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3))}, r"set.npz: input 'x' of .* is float32.*but float64 was fed"),
        ({"x": np.zeros((2, 4), "f")}, r"set.npz: input 'x' .*fixed at 3, not 4"),
        ({"other": np.zeros((2, 3), "f")}, r"has no 'x' for .*; it has other. The model's inputs"),
        ({"x": np.zeros((0, 3), "f")}, "holds no samples"),
        ({"x": np.zeros((2, 3), "f"), "labels": np.zeros(3)}, "'x' has 2, 'labels' has 3"),
        ({"x": np.zeros((2, 3), "f"), "labels": np.zeros(())}, "'labels' is a scalar"),
        ({"x": np.array([{}, {}])}, "holds Python objects"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(tmp_path, arrays, message):
    with pytest.raises(InputError, match=message):
        open_dataset(table(tmp_path, **arrays), model())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"set.npz: not an .npz file"):
        open_dataset(tmp_path / "set.npz", model())


@pytest.mark.parametrize("rows", [3, 2**40, 2**62])
def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path, rows):
    path = table(tmp_path, x=np.zeros((2, 3), np.float32))
    with zipfile.ZipFile(path) as archive:
        member = archive.read("x.npy")
    header = str((2, 3)).encode()
    longer = str((rows, 3)).encode()
    member = member.replace(header, longer).replace(
        b" " * (len(longer) - len(header)) + b"\n", b"\n", 1
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", member)
    with pytest.raises(InputError, match="'x' ends before its last row"):
        list(open_dataset(path, model()).batches(1 << 20))
