"""Data sets as a model takes them, against numpy, onnxruntime and the files' own formats."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from models import families
from tests.graphs import parse
from tests.models.test_data import write_cifar, write_mnist
from tracer import loading
from tracer.errors import InputError, UsageError
from tracer.inputs.datasets import open_dataset
from tracer.inputs.datasets.layout import Layout

quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def model(inputs="float[N,3] x", outputs="float[N,3] y", body="y = Relu (x)"):
    text = f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return loading.from_proto(parse(text))


def images(batch="N", shape="3,32,32", dtype="float"):
    return model(
        f"{dtype}[{batch},{shape}] x", f"{dtype}[{batch},{shape}] out", "out = Identity (x)"
    )


def table(tmp_path: Path, save=np.savez, **arrays) -> Path:
    path = tmp_path / "set.npz"
    save(path, **arrays)
    return path


def whole(batches):
    batches = list(batches)
    labels = [b.labels for b in batches if b.labels is not None]
    return (
        np.concatenate([b.inputs["x"][: b.size] for b in batches]),
        np.concatenate(labels) if labels else None,
    )


@pytest.mark.parametrize("family", ["lenet", "resnet_cifar", "transformer"])
def test_a_shipped_model_has_the_accuracy_of_its_card_on_the_digits(family):
    """Prepared as for training: a session of onnxruntime gets 97 % right."""
    loaded = loading.load(families.shipped(family, "torch"))
    session = onnxruntime.InferenceSession(str(loaded.path), providers=["CPUExecutionProvider"])
    right = total = 0
    for batch in open_dataset("digits", loaded).batches(100):
        (scores,) = session.run(None, dict(batch.inputs))
        right += int((scores.argmax(1) == batch.labels).sum())
        total += batch.size
    assert total == 360
    assert right / total >= 0.97


def test_digits_are_repeated_and_limited():
    lenet = loading.load(families.shipped("lenet", "torch"))
    once = open_dataset("digits", lenet)
    many = open_dataset("digits*3", lenet, limit=1000)
    assert (once.samples, many.samples) == (360, 1000)
    assert open_dataset("digits", lenet, split="train").samples == 1437
    x, y = whole(once.batches(360))
    pixels, labels = whole(many.batches(77))
    assert [b.size for b in many.batches(77)] == [77] * 12 + [76]
    np.testing.assert_array_equal(pixels, np.concatenate([x, x, x])[:1000])
    np.testing.assert_array_equal(labels, np.concatenate([y, y, y])[:1000])


def test_cifar_10_and_mnist_are_read_from_their_files(tmp_path):
    cifar = write_cifar(tmp_path / "cifar-10-batches-bin")
    digits = write_mnist(tmp_path / "mnist")
    x, y = whole(open_dataset("cifar10", images(), folder=tmp_path).batches(3))
    np.testing.assert_array_equal(x, cifar["test_batch.bin"] / np.float32(255))
    assert y.tolist() == [0, 1, 2, 3]
    train, _ = whole(open_dataset("cifar10", images(), split="train", folder=tmp_path).batches(7))
    np.testing.assert_array_equal(train[4:8], cifar["data_batch_2.bin"] / np.float32(255))
    mnist, y = whole(open_dataset("mnist", images(shape="1,28,28"), folder=tmp_path).batches(4))
    np.testing.assert_array_equal(mnist[:, 0], digits.astype(np.uint8) / np.float32(255))
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_a_data_set_that_is_not_there_says_where_to_put_it(tmp_path, name):
    with pytest.raises(InputError, match=f"is not in {tmp_path}: no .*(Unpack|Put them into)"):
        open_dataset(name, images(), folder=tmp_path)


@quick
@given(
    count=st.integers(1, 40),
    size=st.integers(1, 50),
    limit=st.none() | st.integers(1, 90),
    repeat=st.integers(1, 3),
    fixed=st.none() | st.integers(1, 7),
    save=st.sampled_from([np.savez, np.savez_compressed]),
    order=st.sampled_from("CF"),
)
def test_a_stream_is_the_whole(tmp_path, count, size, limit, repeat, fixed, save, order):
    x = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    y = np.arange(count)
    path = table(tmp_path, save, x=np.asarray(x, order=order), labels=y)
    loaded = model(f"float[{fixed or 'N'},3] x", f"float[{fixed or 'N'},3] y")
    dataset = open_dataset(f"{path}*{repeat}", loaded, limit=limit)
    batches = list(dataset.batches(size))
    expected = np.concatenate([x] * repeat)[:limit]
    found, labels = whole(batches)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(labels, np.concatenate([y] * repeat)[:limit])
    assert dataset.samples == len(expected)
    rows = fixed or size
    assert [b.size for b in batches[:-1]] == [rows] * (len(batches) - 1)
    for batch in batches:
        assert len(batch.inputs["x"]) == (fixed or batch.size)
        last = batch.inputs["x"][batch.size - 1]
        assert (batch.inputs["x"][batch.size :] == last).all()


@quick
@given(count=st.integers(1, 30), chunk=st.integers(1, 40))
def test_a_fingerprint_is_of_the_samples_and_not_of_their_storage(tmp_path, count, chunk):
    x = np.random.default_rng(count).random((count, 3), np.float32)
    path = table(tmp_path, x=x, labels=np.arange(count))
    first = open_dataset(path, model()).fingerprint()
    squeezed = tmp_path / "squeezed.npz"
    np.savez_compressed(squeezed, labels=np.arange(count), x=np.asfortranarray(x))
    assert open_dataset(squeezed, model()).fingerprint() == first
    from tracer.inputs.datasets.fingerprint import fingerprint

    pieces = open_dataset(path, model()).batches(chunk)
    assert fingerprint(pieces, frozenset({"x"})) == first
    for other in (
        {"x": x + 1, "labels": np.arange(count)},
        {"x": x, "labels": np.arange(count) + 1},
        {"x": x},
        {"x": x[: count - 1], "labels": np.arange(count - 1)} if count > 1 else {"x": x * 2},
    ):
        assert open_dataset(table(tmp_path, **other), model()).fingerprint() != first
    assert len(first) == hashlib.sha256().digest_size * 2


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
    found, labels = whole(open_dataset(path, model()).batches(9))
    np.testing.assert_array_equal(found, x[:2])
    assert labels.tolist() == [8, 9]
    assert open_dataset(path, model(), split="train").samples == 5


def test_y_is_labels_unless_it_is_the_output(tmp_path):
    x = np.zeros((4, 3), np.float32)
    (batch,) = open_dataset(table(tmp_path, x=x, y=np.arange(4)), model()).batches(4)
    assert (batch.labels.tolist(), batch.outputs) == ([0, 1, 2, 3], None)
    (batch,) = open_dataset(table(tmp_path, x=x, y=x + 1, labels=np.ones(4)), model()).batches(4)
    np.testing.assert_array_equal(batch.outputs["y"], x + 1)
    assert batch.labels.tolist() == [1] * 4


def test_pixels_are_prepared_and_floats_are_taken_as_they_are(tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (2, 28, 28), np.uint8)
    found, _ = whole(open_dataset(table(tmp_path, x=grey), images()).batches(2))
    assert (found.shape, found.dtype) == ((2, 3, 32, 32), np.float32)
    assert 0 <= found.min() < found.max() <= 1
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


def test_pixels_take_the_size_of_an_input_that_has_none():
    found, _ = whole(open_dataset("digits", images(shape="3,H,W"), limit=2).batches(2))
    assert found.shape == (2, 3, 8, 8)


def write_test_data(folder: Path, x: np.ndarray, out: np.ndarray | None = None) -> None:
    folder.mkdir(parents=True)
    (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    if out is not None:
        (folder / "output_0.pb").write_bytes(numpy_helper.from_array(out).SerializeToString())


def test_folders_of_test_data_are_joined_in_the_order_of_their_numbers(tmp_path):
    for index in range(11):
        x = np.full((1 + index % 2, 3), index, np.float32)
        write_test_data(tmp_path / f"test_data_set_{index}", x, -x)
    batches = list(open_dataset(tmp_path, model()).batches(4))
    assert [b.size for b in batches] == [4, 4, 4, 4]
    found = np.concatenate([b.inputs["x"][:, 0] for b in batches])
    assert found.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9, 10]
    outputs = np.concatenate([b.outputs["y"][:, 0] for b in batches])
    np.testing.assert_array_equal(outputs, -found)
    (one,) = open_dataset(tmp_path / "test_data_set_3", model()).batches(9)
    assert one.size == 2


def test_inputs_without_rows_are_taken_as_they_come(tmp_path):
    recurrent = model("float[5,N,3] x", "float[5,N,3] y")
    for index in range(2):
        write_test_data(tmp_path / f"test_data_set_{index}", np.ones((5, 2, 3), np.float32))
    assert [b.size for b in open_dataset(tmp_path, recurrent).batches(1)] == [2, 2]
    path = table(tmp_path, x=np.ones((5, 4, 3), np.float32))
    (batch,) = open_dataset(path, recurrent).batches(1)
    assert batch.size == 4


def test_an_input_that_belongs_to_all_samples_is_in_every_batch(tmp_path):
    loaded = model("float[N,3] x, float[1,3] scale", "float[N,3] y", "y = Mul (x, scale)")
    path = table(tmp_path, x=np.ones((5, 3), np.float32), scale=np.ones((1, 3), np.float32))
    for batch in open_dataset(path, loaded).batches(2):
        assert batch.inputs["scale"].shape == (1, 3)


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows", "batch"),
    [
        ("float[N,3] x", "float[N,3] y", {"x"}, None),
        ("float[batch,3] x, int64[batch,4] ids", "float[?,3] y", {"x", "ids"}, None),
        ("float[4,3] x, float[4] w", "float[4,3] y", {"x", "w"}, 4),
        ("float[4,3] x", "float y", set(), None),
        ("float[N,3] x", "float[7,3] y", set(), None),
        ("float[5,N,3] x", "float[5,N,3] y", set(), None),
        ("float[4,3] x, float[2,3] w", "float[4,3] y", set(), None),
        ("float[3] x", "float[3] y", set(), None),
    ],
)  # fmt: skip
def test_which_inputs_have_a_row_a_sample(inputs, outputs, rows, batch):
    proto = onnx.ModelProto(ir_version=9, opset_import=[onnx.OperatorSetIdProto(version=18)])
    proto.graph.CopyFrom(onnx.parser.parse_graph(f"g ({inputs}) => ({outputs}) {{ y = Relu (x) }}"))
    assert Layout.of(loading.Model(proto, None, "", ("Relu_0",))) == Layout(frozenset(rows), batch)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3))}, r"set.npz: input 'x' of .* is float32.*but float64 was given"),
        ({"x": np.zeros((2, 4), "f")}, r"set.npz: input 'x' .*fixed at 3, not 4"),
        ({"other": np.zeros((2, 3), "f")}, r"has no 'x' for .*; it has other. The model's inputs"),
        ({"x": np.zeros((0, 3), "f")}, "holds no samples"),
        ({"x": np.zeros((2, 3), "f"), "labels": np.zeros(3)}, "'x' has 2, 'labels' has 3"),
        ({"x": np.zeros((2, 3), "f"), "labels": np.zeros(())}, "'labels' is one number"),
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


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "svhn",
            UsageError,
            "no data set 'svhn'. There are cifar10, digits, mnist; or give an .npz",
        ),
        ("digits*0", UsageError, "cannot be repeated 0 times"),
        ("none.npz", InputError, "none.npz: no such file"),
        ("tests", InputError, "tests: holds neither"),
    ],
)
def test_a_spec_that_names_nothing_is_refused(spec, error, message):
    with pytest.raises(error, match=message):
        open_dataset(spec, images())


def test_arguments_that_make_no_sense_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no split 'validation'"):
        open_dataset("digits", images(), split="validation")
    with pytest.raises(UsageError, match="limit of 0"):
        open_dataset("digits", images(), limit=0)
    with pytest.raises(UsageError, match="batches of 0"):
        list(open_dataset("digits", images()).batches(0))
    write_test_data(tmp_path / "test_data_set_0", np.zeros((1, 3), np.float32))
    with pytest.raises(UsageError, match="no split 'train'"):
        open_dataset(tmp_path, model(), split="train")


def test_images_for_a_model_of_words_are_refused():
    words = model("int64[N,8] ids, int64[N,8] mask", "int64[N,8] y", "y = Add (ids, mask)")
    with pytest.raises(InputError, match=r"one input; those of .* are ids, mask. Give an .npz"):
        open_dataset("digits", words)
    with pytest.raises(InputError, match=r"digits: input 'x' .* is int8.*but uint8 was given"):
        open_dataset("digits", images(dtype="int8"))


def test_samples_of_different_shapes_make_no_batch(tmp_path):
    loaded = model("float[N,L] x", "float[N,L] y")
    for index in range(2):
        x = np.ones((1, 2 + index), np.float32)
        write_test_data(tmp_path / f"test_data_set_{index}", x)
    assert [b.size for b in open_dataset(tmp_path, loaded).batches(1)] == [1, 1]
    with pytest.raises(InputError, match=r"shapes \[2\] and \[3\], which make no batch"):
        list(open_dataset(tmp_path, loaded).batches(2))


def test_expected_outputs_that_are_not_a_row_a_sample_are_refused(tmp_path):
    write_test_data(tmp_path / "test_data_set_0", np.ones((2, 3), "f"), np.ones((3, 3), "f"))
    with pytest.raises(InputError, match="a row of each tensor, but 'x' has 2, 'y' has 3"):
        open_dataset(tmp_path, model())
