"""Samples in test_data_set folders."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tracer.datasets.sets import model, table, write_test_data
from tracer.errors import InputError
from tracer.inputs.datasets import open_dataset


def test_folders_of_test_data_are_joined_in_the_order_of_their_numbers(tmp_path):
    for index in range(11):
        x = np.full((1 + index % 2, 3), index, np.float32)
        write_test_data(tmp_path / f"test_data_set_{index}", x, -x)
    batches = list(open_dataset(tmp_path, model()).batches(4))
    assert [b.size for b in batches] == [4, 4, 4, 4]
    values = np.concatenate([b.inputs["x"][:, 0] for b in batches])
    assert values.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9, 10]
    outputs = np.concatenate([b.outputs["y"][:, 0] for b in batches])
    np.testing.assert_array_equal(outputs, -values)
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


def test_samples_of_different_shapes_make_no_batch(tmp_path):
    loaded = model("float[N,L] x", "float[N,L] y")
    for index in range(2):
        x = np.ones((1, 2 + index), np.float32)
        write_test_data(tmp_path / f"test_data_set_{index}", x)
    assert [b.size for b in open_dataset(tmp_path, loaded).batches(1)] == [1, 1]
    with pytest.raises(InputError, match=r"shapes \[2\] and \[3\], which do not fit in one batch"):
        list(open_dataset(tmp_path, loaded).batches(2))


def test_expected_outputs_that_are_not_a_row_a_sample_are_refused(tmp_path):
    write_test_data(tmp_path / "test_data_set_0", np.ones((2, 3), "f"), np.ones((3, 3), "f"))
    with pytest.raises(InputError, match="a row of each tensor, but 'x' has 2, 'y' has 3"):
        open_dataset(tmp_path, model())
