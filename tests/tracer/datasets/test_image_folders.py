"""Folders of images in ImageNet's layout, against Pillow and torchvision's rule for classes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.tracer.datasets.sets import images, model, whole, write_image
from tracer.errors import InputError
from tracer.inputs.datasets.opening import open_dataset

Image = pytest.importorskip("PIL.Image")
SYNSETS = ("n01440764", "n01443537", "n02119789")


def tree(folder, *, by_class=True, labels=""):
    """ImageNet's own tree, made up: train by class, val by class or flat with labels."""
    for number in range(6):
        write_image(
            folder / "train" / SYNSETS[number % 3] / f"t_{number}.JPEG", number, kind="JPEG"
        )
    for number in range(5):
        name = f"ILSVRC2012_val_{number + 1:08}.JPEG"
        inside = folder / "val" / SYNSETS[number % 2 + 1] if by_class else folder / "val"
        write_image(inside / name, 10 + number, kind="JPEG", size=(8 + number, 9))
    if labels:
        (folder / "val.txt").write_text(labels)
    return folder


def pixels(path, size=(8, 8)):
    picture = Image.open(path).convert("RGB")
    resized = np.asarray(picture.resize(size, Image.Resampling.BILINEAR))
    return resized.transpose(2, 0, 1) / np.float32(255)


@pytest.mark.parametrize("split", ["test", "train"])
def test_images_and_classes_are_those_of_torchvision(tmp_path, split):
    """ImageFolder: classes sorted by name and numbered, files sorted within a class."""
    tree(tmp_path)
    base = tmp_path / ("val" if split == "test" else "train")
    classes = sorted(entry.name for entry in os.scandir(tmp_path / "train"))
    files = [
        (path, classes.index(folder.name))
        for folder in sorted(base.iterdir())
        for path in sorted(folder.iterdir())
    ]
    values, labels = whole(open_dataset(f"{tmp_path}:{split}", images(shape="3,8,8")).batches(2))
    assert labels.tolist() == [label for _, label in files]
    np.testing.assert_array_equal(values, np.stack([pixels(path) for path, _ in files]))


CAFFE = "".join(f"ILSVRC2012_val_{n + 1:08}.JPEG {n % 3}\n" for n in range(5))
KAGGLE = "ImageId,PredictionString\n" + "".join(
    f"ILSVRC2012_val_{n + 1:08},{SYNSETS[n % 3]} 1 2 30 40 {SYNSETS[0]} 5 6 7 8\n"
    for n in reversed(range(5))
)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("val.txt", CAFFE),
        ("LOC_val_solution.csv", KAGGLE),
        ("val/labels.txt", CAFFE.replace(" ", "\t")),
        ("val/labels.csv", "filename,label\n" + CAFFE.replace(" ", ",")),
    ],
)
def test_the_labels_of_a_flat_folder_are_in_a_file(tmp_path, file, text):
    tree(tmp_path, by_class=False)
    (tmp_path / file).write_text(text)
    for spec in (tmp_path, tmp_path / "val") if text != KAGGLE else (tmp_path,):
        _, labels = whole(open_dataset(spec, images(shape="3,8,8")).batches(9))
        assert labels.tolist() == [0, 1, 2, 0, 1]


def test_a_folder_without_classes_is_for_calibration(tmp_path):
    for number in range(3):
        write_image(tmp_path / f"{number}.png", number)
    (tmp_path / "notes.txt").write_text("not an image")
    (batch,) = open_dataset(tmp_path, images(shape="3,8,8"), split="train").batches(9)
    assert (batch.size, batch.labels) == (3, None)


def test_a_tree_without_splits_serves_both(tmp_path):
    for number in range(4):
        write_image(tmp_path / "cats dogs"[number % 2 * 5 :][:4] / f"{number}.png", number)
    for split in ("test", "train"):
        _, labels = whole(open_dataset(tmp_path, images(shape="3,8,8"), split=split).batches(2))
        assert labels.tolist() == [0, 0, 1, 1]


def test_trees_that_do_not_fit_are_refused(tmp_path):
    tree(tmp_path)
    with pytest.raises(InputError, match=r"are images, \[N, C, H, W\]; input 'x'"):
        open_dataset(tmp_path, model())
    write_image(tmp_path / "val" / "n999" / "a.png", 1)
    with pytest.raises(InputError, match=r"val/n999: no class of train/ is called n999"):
        open_dataset(tmp_path, images(shape="3,8,8"))
    (tmp_path / "val" / "n999" / "a.png").rename(tmp_path / "val" / "a.png")
    (tmp_path / "val" / "labels.txt").write_text("a.png fox\n")
    with pytest.raises(InputError, match=r"labels.txt, line 1: 'fox' is no class"):
        open_dataset(tmp_path, images(shape="3,8,8"))
    (tmp_path / "val" / "labels.txt").write_text("b.png 1\n")
    with pytest.raises(InputError, match=r"labels.txt: has no label of .*a.png"):
        open_dataset(tmp_path, images(shape="3,8,8"))
    (tmp_path / "val" / "labels.txt").write_text("a.png 1\n")
    assert open_dataset(tmp_path, images(shape="3,8,8")).samples == 1
    (tmp_path / "val" / "a.png").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"val/a.png: not an image that can be read"):
        open_dataset(tmp_path, images(shape="3,8,8"))


def test_names_that_are_no_unicode_are_read(tmp_path):
    write_image(tmp_path / "cats" / os.fsdecode(b"\xff\xfe.png"), 1)
    assert open_dataset(tmp_path, images(shape="3,8,8")).samples == 1
