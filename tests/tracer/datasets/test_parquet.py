"""Rows of Parquet files, against pyarrow and Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.tracer.datasets.sets import encoded, images, model, whole
from tracer.errors import InputError
from tracer.inputs.datasets.opening import open_dataset

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write(path, columns, **options):
    parquet.write_table(pa.table(columns), path, **options)
    return path


def test_images_are_those_that_pillow_decodes_and_resizes(tmp_path):
    """The layout of data sets on Hugging Face: a struct of bytes and a path."""
    image = pytest.importorskip("PIL.Image")
    sizes = [(8, 8), (5, 9), (12, 4)]
    files = [encoded(i, size) for i, size in enumerate(sizes)] + [encoded(3, (8, 8), "L")]
    cells = [{"bytes": file, "path": f"{i}.png"} for i, file in enumerate(files)]
    path = write(tmp_path / "set.parquet", {"image": cells, "label": [3, 1, 2, 0]})
    values, labels = whole(open_dataset(path, images(shape="3,6,6")).batches(3))
    assert labels.tolist() == [3, 1, 2, 0]
    for value, file in zip(values, files, strict=True):
        picture = image.open(io.BytesIO(file)).convert("RGB")
        resized = np.asarray(picture.resize((6, 6), image.Resampling.BILINEAR))
        np.testing.assert_array_equal(value, resized.transpose(2, 0, 1) / np.float32(255))


@pytest.mark.parametrize("kind", ["bytes", "lists", "nested", "fixed", "tensor"])
def test_a_column_is_an_input(tmp_path, kind):
    x = np.random.default_rng(0).random((7, 2, 3), np.float32)
    flat = list(x.reshape(7, 6))
    columns = {
        "lists": pa.array(flat),
        "nested": pa.array(x.tolist(), pa.list_(pa.list_(pa.float32()))),
        "fixed": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 6),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(x),
        "bytes": [encoded(i, (3, 3)) for i in range(7)],
    }
    path = write(tmp_path / "set.parquet", {"x": columns[kind], "y": np.arange(7.0)})
    if kind == "bytes":
        assert open_dataset(path, images(shape="3,3,3")).samples == 7
        return
    loaded = model("float[N,2,3] x", "float[N,2,3] out", "out = Relu (x)")
    values, labels = whole(open_dataset(path, loaded).batches(3))
    np.testing.assert_array_equal(values, x)
    assert labels.tolist() == list(range(7))


def test_a_model_with_several_inputs_takes_the_columns_of_their_names(tmp_path):
    words = model("int64[N,4] ids, int64[N,4] mask", "int64[N,4] out", "out = Add (ids, mask)")
    ids, mask = np.arange(20).reshape(5, 4), np.ones((5, 4), np.int64)
    path = write(tmp_path / "set.parquet", {"mask": list(mask), "ids": list(ids), "cls": range(5)})
    (batch,) = open_dataset(path, words).batches(9)
    np.testing.assert_array_equal(batch.inputs["ids"], ids)
    np.testing.assert_array_equal(batch.inputs["mask"], mask)
    assert batch.labels.tolist() == list(range(5))


def test_a_part_reads_only_its_row_groups(tmp_path):
    path = write(tmp_path / "set.parquet", {"x": list(np.eye(300, 3, dtype="f"))}, row_group_size=9)
    expected, _ = whole(open_dataset(path, model()).part(100, 5).batches(5))
    dataset = open_dataset(path, model())
    data, groups = bytearray(path.read_bytes()), parquet.ParquetFile(path).metadata
    for group in range(groups.num_row_groups):
        if group != 11:  # rows 99 to 107
            start = groups.row_group(group).column(0).data_page_offset
            data[start : start + 20] = bytes(20)
    path.write_bytes(data)
    found, _ = whole(dataset.part(100, 5).batches(5))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"other": [[1.0] * 3]}, r"set.parquet has no field for input 'x' of .*; it has other"),
        ({"x": [[1.0] * 3]}, "input 'x' of .* is float32.*, but float64 was fed"),
        ({"x": [["a"] * 3]}, "column x: string"),
        ({"x": [np.ones(3, "f"), np.ones(2, "f")]}, "column x: lists of 2 lengths"),
        ({"x": [np.ones(3, "f"), None]}, "column x: lists of .*, or none in a row"),
        ({"x": [b"no image"]}, "column x: not an image that can be read"),
        ({"x": [None, b""]}, r"column x: has no image in 1 row\b"),
        ({"x": pa.array([], pa.list_(pa.float32()))}, "holds no samples"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        list(open_dataset(write(tmp_path / "set.parquet", columns), model()).batches(2))


def test_files_that_do_not_fit_are_refused(tmp_path):
    write(tmp_path / "a.parquet", {"x": [np.ones(3, "f")]})
    write(tmp_path / "b.parquet", {"x": [np.ones(3, "f")], "y": [1]})
    with pytest.raises(InputError, match=r"b.parquet: has the columns x, y, unlike .*a.parquet"):
        open_dataset(tmp_path / "*.parquet", model())
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match=r"c.parquet: not a Parquet file that can be read"):
        open_dataset(tmp_path / "c.parquet", model())
    with pytest.raises(InputError, match=r"d-\*.parquet: no such file"):
        open_dataset(tmp_path / "d-*.parquet", model())
    shared = model("float[N,3] x, float[1,3] w", "float[N,3] y", "y = Mul (x, w)")
    with pytest.raises(InputError, match=r"input 'w' of .* has no row for each"):
        open_dataset(tmp_path / "a.parquet", shared)
