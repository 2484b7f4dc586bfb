from __future__ import annotations

import gzip
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import data
from models.data.archive import read_archive
from tracer.errors import InputError, UsageError
from tracer.inputs.datasets import images
from tracer.inputs.datasets.sets import split
from tracer.inputs.datasets.sets.mnist import read_idx

CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
FIRST_TEST_DIGITS = [6, 6, 6, 2, 5, 6, 6, 2, 2, 1]


def write_cifar(folder: Path, images_each: int = 4) -> dict[str, np.ndarray]:
    """Files as https://www.cs.toronto.edu/~kriz/cifar.html describes the binary version."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    pixels = {}
    for name in CIFAR_FILES:
        pixels[name] = rng.integers(0, 256, (images_each, 3, 32, 32), np.uint8)
        with (folder / name).open("wb") as stream:
            for label, image in enumerate(pixels[name]):
                stream.write(struct.pack("B", label) + image.tobytes())
    return pixels


def idx(array: np.ndarray) -> bytes:
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    return header + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, suffix: str = "") -> np.ndarray:
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (6, 28, 28))
    for stem in ("train", "t10k"):
        for name, array in (("images-idx3", pixels), ("labels-idx1", np.arange(6))):
            content = gzip.compress(idx(array)) if suffix == ".gz" else idx(array)
            (folder / f"{stem}-{name}-ubyte{suffix}").write_bytes(content)
    return pixels


def test_the_digits_are_split_once_and_for_all():
    digits = data.load("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert digits.train.x.shape == (1437, 1, 8, 8)
    assert digits.labels == tuple("0123456789")
    whole = np.concatenate([digits.train.x, digits.test.x]).reshape(1797, -1)
    from sklearn.datasets import load_digits

    assert sorted(map(bytes, whole)) == sorted(
        bytes(np.rint(image.ravel() * 255 / 16).astype(np.uint8)) for image in load_digits().images
    )
    again = data.load("digits")
    np.testing.assert_array_equal(digits.test.x, again.test.x)
    # Chosen by numpy's seeded generator: these are the first test images on every machine.
    assert digits.test.y[:10].tolist() == again.test.y[:10].tolist() == FIRST_TEST_DIGITS


def test_data_can_be_read_without_a_framework():
    code = (
        "import sys; from models import data; data.load('digits').fitted((3, 32, 32));"
        "sys.exit(any(m in sys.modules for m in ('torch', 'chainer', 'onnx')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("folder", ["cifar-10-batches-bin", "."])
def test_cifar_10_is_read_from_its_binary_version(tmp_path, folder):
    pixels = write_cifar(tmp_path / "data" / folder)
    cifar = data.load("cifar10", tmp_path / "data")
    assert (len(cifar.train), len(cifar.test)) == (20, 4)
    np.testing.assert_array_equal(cifar.train.x[4:8], pixels["data_batch_2.bin"])
    np.testing.assert_array_equal(cifar.test.x, pixels["test_batch.bin"])
    assert cifar.test.y.tolist() == [0, 1, 2, 3]
    assert cifar.labels[3] == "cat"


def test_missing_cifar_10_is_told_with_what_to_get_and_where_to_put_it(tmp_path):
    with pytest.raises(
        InputError, match=r"no data_batch_1.bin.*cifar-10-binary.tar.gz.*--data-dir"
    ):
        data.load("cifar10", tmp_path)


def test_a_truncated_cifar_file_is_refused(tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-bin")
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_3.bin: 12291 bytes are not whole records"):
        data.load("cifar10", tmp_path)


def test_a_label_that_is_no_cifar_class_is_refused(tmp_path):
    write_cifar(tmp_path / "cifar-10-batches-bin", images_each=11)
    with pytest.raises(InputError, match="a label is 10, but there are 10 classes"):
        data.load("cifar10", tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_mnist_is_read_from_its_idx_files(tmp_path, folder, suffix):
    pixels = write_mnist(tmp_path / "data" / folder, suffix)
    mnist = data.load("mnist", tmp_path / "data")
    np.testing.assert_array_equal(mnist.train.x[:, 0], pixels)
    assert mnist.test.y.tolist() == [0, 1, 2, 3, 4, 5]


def test_missing_mnist_is_told_with_what_to_get_and_where_to_put_it(tmp_path):
    with pytest.raises(InputError, match=r"no train-images-idx3-ubyte, .*mnist, or set --data-dir"):
        data.load("mnist", tmp_path)
    write_mnist(tmp_path / "mnist")
    for name in ("train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / "mnist" / name).unlink()
    with pytest.raises(InputError, match="no train-labels-idx1-ubyte, t10k-images-idx3-ubyte "):
        data.load("mnist", tmp_path)


@pytest.mark.parametrize("folder_exists", [True, False])
def test_the_archive_of_cifar_10_is_unpacked_in_the_data_folder_itself(
    tmp_path, monkeypatch, folder_exists
):
    """It brings its folder: unpacked inside that folder, nothing would be found."""
    monkeypatch.chdir(tmp_path)
    folder = Path("data")
    unpacked = folder / "cifar-10-batches-bin"
    if folder_exists:
        unpacked.mkdir(parents=True)
    with pytest.raises(InputError, match=f"in {folder}, which creates {unpacked}; or set"):
        data.load("cifar10", folder)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple))
def test_an_idx_file_of_any_shape_comes_back(tmp_path_factory, shape):
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(idx(array))
    np.testing.assert_array_equal(read_idx(path, len(shape)), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an idx file"),
        (idx(np.zeros((2, 3)))[:7], "not an idx file"),
        (idx(np.zeros(3)), "not an idx file of 2-dimensional"),
        (idx(np.zeros((2, 3)))[:-1], "promises 6 bytes, but 5 follow"),
        (idx(np.zeros((2, 3))) + b"x", "promises 6 bytes, but 7 follow"),
        (struct.pack(">BBBBII", 0, 0, 8, 2, 2**31, 2**32 - 1), "bytes, but 0 follow"),
    ],
)
def test_a_broken_idx_file_is_refused(tmp_path, content, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_idx(path, 2)


def test_a_broken_gzip_file_is_refused(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte.gz"
    for content in (b"no gzip", gzip.compress(idx(np.zeros((2, 3))))[:-9]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a complete gzip file"):
            read_idx(path, 2)


def test_images_and_labels_of_different_downloads_are_refused(tmp_path):
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx(np.arange(5)))
    with pytest.raises(InputError, match=r"has 6 images, but .* has 5 labels"):
        data.load("mnist", tmp_path)


def test_an_archive_with_test_images_keeps_them(tmp_path):
    path = tmp_path / "set.npz"
    x = np.random.default_rng(0).random((5, 3, 4, 4))
    np.savez(path, x=x, y=np.arange(5), x_test=x[:2], y_test=np.array([7, 1]))
    loaded = data.load(str(path))
    assert (loaded.name, len(loaded.train), len(loaded.test)) == ("set", 5, 2)
    assert loaded.labels == tuple("01234567")
    batch, classes = loaded.test.batch(slice(0, 1))
    assert (batch.dtype, classes.tolist()) == (np.float32, [7])
    np.testing.assert_allclose(batch, x[:1], rtol=1e-6)


def test_an_archive_without_test_images_gives_a_fifth(tiny_data):
    result = read_archive(tiny_data)
    assert (len(result.train), len(result.test)) == (32, 8)
    assert result.train.x.shape == (32, 1, 8, 8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 8, 8))}, "no array y"),
        ({"x": np.zeros((3, 8, 8)), "y": np.zeros(2, int)}, r"x \(3, 1, 8, 8\) and y \(2,\)"),
        ({"x": np.zeros((3, 8)), "y": np.zeros(3, int)}, "do not fit"),
        ({"x": np.zeros((3, 8, 8), int), "y": np.zeros(3, int)}, "x is int64"),
        ({"x": np.full((3, 8, 8), np.nan), "y": np.zeros(3, int)}, "not finite"),
        ({"x": np.zeros((3, 8, 8)), "y": np.zeros(3)}, "y is not a class index"),
        ({"x": np.zeros((3, 8, 8)), "y": np.array([0, -1, 1])}, "y is not a class index"),
        ({"x": np.zeros((3, 8, 8)), "y": np.array([0, 1, 10**9])}, "reaches 1000000000"),
        ({"x": np.zeros((3, 8, 8)), "y": np.array([0, 1, 2**64 - 1], np.uint64)}, "from 0, below"),
        ({"x": np.zeros((1, 8, 8)), "y": np.zeros(1, int)}, "1 images cannot be split"),
        ({"x": np.zeros((0, 8, 8)), "y": np.zeros(0, int)}, "do not fit"),
        ({"x": np.zeros((3, 8, 8)), "y": np.array([{}] * 3)}, "not an .npz of plain arrays"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused(tmp_path, arrays, message):
    path = tmp_path / "set.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message):
        data.load(str(path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", pickle.dumps({"x": 1})])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "set.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not an .npz of plain arrays"):
        data.load(str(path))


def test_a_name_that_is_no_data_set_is_answered_with_those_that_are():
    with pytest.raises(UsageError, match=r"no data set 'svhn'. There are cifar10, digits, mnist"):
        data.load("svhn")


@given(st.integers(2, 50), st.data())
def test_a_split_is_a_partition(count, draw):
    test = draw.draw(st.integers(1, count - 1))
    y = np.arange(count)
    train, rest = split(y[:, None, None, None], y, test)
    assert len(rest) == test
    assert sorted([*train.y, *rest.y]) == list(range(count))
    np.testing.assert_array_equal(train.x[:, 0, 0, 0], train.y)


def test_pixels_become_floats_between_0_and_1():
    np.testing.assert_array_equal(
        images.as_float(np.array([0, 51, 255], np.uint8)), np.array([0, 0.2, 1], np.float32)
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_are_resized_as_pillow_does_it(dtype):
    from PIL import Image

    x = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 10)).astype(dtype)
    result = images.fit(x, (3, 16, 12))
    expected = Image.fromarray(x[1, 2]).resize((12, 16), Image.Resampling.BILINEAR)
    assert result.shape == (2, 3, 16, 12)
    np.testing.assert_array_equal(result[1, 2], np.asarray(expected))


def test_grey_and_colour_become_each_other():
    grey = np.arange(2 * 16, dtype=np.uint8).reshape(2, 1, 4, 4)
    colour = images.fit(grey, (3, 4, 4))
    assert colour.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(images.fit(colour, (1, 4, 4)), grey)
    np.testing.assert_array_equal(
        images.fit(grey, (3, 9, 9))[:, 2], images.fit(grey, (1, 9, 9))[:, 0]
    )


def test_images_of_two_channels_are_refused():
    with pytest.raises(InputError, match="images of 2 channels do not fit a model that takes 3"):
        images.fit(np.zeros((1, 2, 4, 4), np.uint8), (3, 4, 4))


def test_an_image_file_is_read_as_grey_or_colour(tmp_path):
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "colour.png")
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(images.read(tmp_path / "colour.png")[0, 1], pixels[:, :, 1])
    assert images.read(tmp_path / "grey.png").shape == (1, 1, 5, 4)


def test_a_file_that_is_no_image_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="not an image that can be read"):
        images.read(tmp_path / "a.png")
    with pytest.raises(InputError, match="no such file"):
        images.read(tmp_path / "b.png")
