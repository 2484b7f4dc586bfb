"""The data sets with a name, against their files and the accuracy of models trained on them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from models import families
from tests.models.test_data import write_cifar, write_mnist
from tests.tracer.datasets.sets import images, model, whole
from tracer.errors import InputError
from tracer.graph import loading
from tracer.inputs.datasets import images as images_of
from tracer.inputs.datasets.opening import open_dataset


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


def test_a_name_chooses_its_split():
    lenet = loading.load(families.shipped("lenet", "torch"))
    given = whole(open_dataset("digits", lenet, split="train").batches(100))
    named = open_dataset("digits:train", lenet)
    assert named.name == "digits:train"
    for expected, actual in zip(given, whole(named.batches(100)), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert open_dataset("digits:train*2", lenet).samples == 2 * 1437
    assert open_dataset("digits:test", lenet, split="train").samples == 360  # the name decides


@pytest.mark.parametrize(("room", "read"), [(1 << 24, 1), (1 << 21, 3)])
def test_repeated_digits_are_read_again_only_where_there_is_no_room(monkeypatch, room, read):
    monkeypatch.setattr("tracer.inputs.datasets.dataset._CACHE_BYTES", room)
    many = open_dataset("digits*3", loading.load(families.shipped("lenet", "torch")))
    counts, fit = [], images_of.fit
    monkeypatch.setattr(images_of, "fit", lambda x, shape: counts.append(len(x)) or fit(x, shape))
    pixels, _ = whole(many.batches(64))
    assert sum(counts) == 360 * read
    np.testing.assert_array_equal(pixels[:720], pixels[360:])


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


def test_pixels_take_the_size_of_an_input_that_has_none():
    values, _ = whole(open_dataset("digits", images(shape="3,H,W"), limit=2).batches(2))
    assert values.shape == (2, 3, 8, 8)


def test_images_for_a_model_of_words_are_refused():
    words = model("int64[N,8] ids, int64[N,8] mask", "int64[N,8] y", "y = Add (ids, mask)")
    with pytest.raises(InputError, match=r"one input; those of .* are ids, mask. Name an .npz"):
        open_dataset("digits", words)
    for taken in ("int8[N,3,8,8]", "int64[N,8]", "float[N,64]", "float[N,8,8]"):
        other = model(f"{taken} x", f"{taken} y", "y = Identity (x)")
        with pytest.raises(InputError, match=r"digits are images, \[N, C, H, W\]; input 'x'"):
            open_dataset("digits", other)
    assert open_dataset("digits", images(shape="1,8,8", dtype="uint8")).samples == 360
