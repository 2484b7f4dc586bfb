"""Samples in tar files, against WebDataset's own reader and writer, tarfile and Pillow."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.tracer.datasets.sets import encoded, images, model, whole, write_tar
from tracer.errors import InputError
from tracer.inputs.datasets.opening import files_of, open_dataset


def pictures(count: int):
    return [(f"{i:06}", {"jpg": encoded(i, kind="JPEG"), "cls": i % 7}) for i in range(count)]


def test_webdataset_reads_the_same_samples(tmp_path):
    wds = pytest.importorskip("webdataset")
    image = pytest.importorskip("PIL.Image")
    with wds.ShardWriter(str(tmp_path / "part-%03d.tar"), maxcount=4, verbose=0) as writer:
        for key, fields in pictures(11):
            writer.write({"__key__": f"a.folder/{key}", **fields})
    urls = f"{tmp_path}/part-{{000..002}}.tar"
    theirs = list(wds.WebDataset(urls, shardshuffle=False, empty_check=False).decode("pil"))
    values, labels = whole(open_dataset(urls, images(shape="3,8,8")).batches(4))
    assert labels.tolist() == [sample["cls"] for sample in theirs]
    assert isinstance(theirs[0]["jpg"], image.Image)
    expected = [np.asarray(sample["jpg"]).transpose(2, 0, 1) for sample in theirs]
    np.testing.assert_array_equal(values, np.stack(expected) / np.float32(255))


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_of_any_length_are_read_in_parts(tmp_path, form):
    """Long names have headers of their own, at which a sample begins."""
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w", format=form) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for number in range(9):
            stem = f"folder/{'deep/' * (number * 6)}{number:06}"
            if form == tarfile.USTAR_FORMAT:
                stem = stem[-40:]
            stream = io.BytesIO()
            np.save(stream, np.full(3, number, np.float32))
            for name, data in (
                ("npy", stream.getvalue()),
                ("txt", b"prose"),
                ("cls", b"%d\n" % number),
            ):
                info = tarfile.TarInfo(f"{stem}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        tar.addfile(tarfile.TarInfo("folder/.hidden"))
        tar.addfile(tarfile.TarInfo("README"))
    dataset = open_dataset(path, model())
    assert dataset.samples == 9
    for first in range(9):
        values, labels = whole(dataset.part(first, 2).batches(2))
        assert labels.tolist() == [first, first + 1][: 9 - first]
        np.testing.assert_array_equal(values[:, 0], labels)


def test_a_label_is_a_class_an_array_or_in_json(tmp_path):
    x = np.ones(3, np.float32)
    samples = {
        "cls": ({"npy": x, "cls": 4}, 4),
        "json": ({"npy": x, "json": {"label": 5, "id": "a"}}, 5),
        "number": ({"npy": x, "json": 6}, 6),
        "array": ({"x.npy": x, "label.npy": np.array([7.0, 8.0])}, [7.0, 8.0]),
        "none": ({"npy": x, "json": {"id": "a"}}, None),
    }
    for name, (fields, label) in samples.items():
        path = tmp_path / f"{name}.tar"
        write_tar(path, [("a", fields), ("b", fields)])
        (batch,) = open_dataset(path, model()).batches(2)
        expected = None if label is None else [label, label]
        assert (batch.labels if label is None else batch.labels.tolist()) == expected


def test_a_model_with_several_inputs_takes_the_fields_of_their_names(tmp_path):
    words = model("int64[N,4] ids, int64[N,4] mask", "int64[N,4] out", "out = Add (ids, mask)")
    ids = np.arange(8).reshape(2, 4)
    fields = [(f"{i}", {"mask.npy": ids[i] + 9, "ids.npy": ids[i]}) for i in range(2)]
    write_tar(tmp_path / "set.tar", fields)
    (batch,) = open_dataset(tmp_path / "set.tar", words).batches(2)
    np.testing.assert_array_equal(batch.inputs["ids"], ids)
    np.testing.assert_array_equal(batch.inputs["mask"], ids + 9)


def test_patterns_are_those_of_webdataset_and_the_shell(tmp_path):
    names = [f"{kind}-{number:02}.tar" for kind in "ab" for number in range(12)]
    for name in names:
        (tmp_path / name).touch()
    found = [path.name for path in files_of(tmp_path / "{b,a}-{09..11}.tar")]
    assert found == ["b-09.tar", "b-10.tar", "b-11.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert [path.name for path in files_of(tmp_path / "*-0?.tar")] == [
        name for name in names if "-0" in name
    ]
    assert files_of(tmp_path / "a-00.tar") == [tmp_path / "a-00.tar"]
    with pytest.raises(InputError, match=r"a-12.tar: no such file"):
        files_of(tmp_path / "a-{11..12}.tar")


def test_braces_expand_as_those_of_webdataset():
    braceexpand = pytest.importorskip("braceexpand")
    from tracer.inputs.datasets.opening import _expanded

    for pattern in ("a{000..012}.tar", "{a,b}/x-{1..3}{c,d}.tar", "plain.tar"):
        assert _expanded(pattern) == list(braceexpand.braceexpand(pattern))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"txt": "prose"}, r"the first sample has no field for input 'x' of .*; it has txt"),
        ({"npy": b"no array"}, r"a.npy: not an array"),
        ({"png": b"no image"}, r"a.png: not an image that can be read"),
        ({"npy": np.ones(3, "f"), "cls": "dog"}, r"a.cls: b'dog' is no class. Write its number"),
        ({"npy": np.ones(3, "f"), "json": b"{"}, r"a.json: not JSON"),
        ({"npy": np.ones(3, "f"), "json": {"label": "dog"}}, r"a.json: the label is no number"),
        ({"x.txt": "prose"}, r"a.x.txt: neither an image nor an array"),
        ({"npy": np.ones(3, "f"), "NPY": np.ones(3, "f")}, r"a.NPY: its sample has two fields npy"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path, fields, message):
    write_tar(tmp_path / "set.tar", [("a", fields)])
    with pytest.raises(InputError, match=rf"set.tar: {message}"):
        open_dataset(tmp_path / "set.tar", model())


def test_a_sample_without_a_field_of_the_others_is_refused(tmp_path):
    x = np.ones(3, np.float32)
    write_tar(tmp_path / "set.tar", [("a", {"npy": x, "cls": 1}), ("b", {"npy": x})])
    with pytest.raises(InputError, match=r"set.tar: b.npy: its sample has no field cls"):
        list(open_dataset(tmp_path / "set.tar", model()).batches(1))


def test_files_that_are_no_tars_are_refused(tmp_path):
    whole_tar, path = tmp_path / "whole.tar", tmp_path / "set.tar"
    write_tar(whole_tar, [(f"{i}", {"npy": np.ones(300, "f")}) for i in range(4)])
    data = whole_tar.read_bytes()
    loaded = model("float[N,300] x", "float[N,300] y")
    cut, garbage = data[:2100], data[:2048] + b"?" * 512 + data[2560:]
    for content in (b"", b"\x1f\x8b gzip", b"x" * 5000, cut, garbage):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"set.tar: (not a tar file that|holds no samples)"):
            open_dataset(path, loaded)
    assert open_dataset(Path(whole_tar), loaded).samples == 4
