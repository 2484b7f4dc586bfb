"""Samples that a user's file yields, against the objects themselves."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.tracer.datasets.sets import images, model, whole
from tracer.errors import InputError
from tracer.inputs.datasets.opening import open_dataset

FILE = """
import numpy as np

X = np.arange(36, dtype=np.float32).reshape(12, 3)
PAIRS = [(x, i) for i, x in enumerate(X)]
ARRAYS = list(X)
ITERATOR = iter(PAIRS)
train = PAIRS


def generator():
    yield from PAIRS


def dicts():
    yield from ({"x": x, "label": np.float32(i), "id": "text"} for i, x in enumerate(X))


class ByNumber:
    read = []

    def __len__(self):
        return 12

    def __getitem__(self, number):
        self.read.append(number)
        if not 0 <= number < 12:
            raise IndexError(number)
        return PAIRS[number]


class IterableDataset:
    def __getitem__(self, number):
        raise NotImplementedError


class OfTorch(IterableDataset):
    def __len__(self):
        return 12

    def __iter__(self):
        return iter(PAIRS)


class Shards:
    asked = []

    def __len__(self):
        return 2000

    def shard(self, i, n):
        self.asked.append((i, n))
        return ((np.full(3, k, np.float32), k) for k in range(i * 2000 // n, (i + 1) * 2000 // n))


class Uneven(Shards):
    def shard(self, i, n):
        return list(super().shard(i, n))[1:]


def pictures():
    yield np.zeros((1, 5, 5), np.uint8), 0
    yield np.full((1, 9, 9), 255, np.uint8), 1


def pillow():
    from PIL import Image

    for grey in (0, 255):
        yield Image.new("RGB", (7, 5), (grey, grey, grey)), grey


def fails():
    yield PAIRS[0]
    raise OSError("the disk is on fire")


def texts():
    yield ["a", None, {}], 1


def changes():
    yield {"x": X[0], "label": 1}
    yield {"x": X[1]}


def nothing():
    return iter(())


def number():
    return 7
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "samples.py").write_text(FILE)
    return tmp_path / "samples.py"


@pytest.mark.parametrize("name", ["PAIRS", "generator", "dicts", "ByNumber", "OfTorch", "train"])
def test_samples_are_those_of_the_object(file, name):
    x = np.arange(36, dtype=np.float32).reshape(12, 3)
    dataset = open_dataset(f"{file}:{name}*2", model(), limit=20)
    for _ in range(2):  # a second reading is the same
        values, labels = whole(dataset.batches(5))
        np.testing.assert_array_equal(values, np.concatenate([x, x])[:20])
        np.testing.assert_array_equal(labels, np.tile(np.arange(12), 2)[:20])
    assert dataset.samples == (None if name in ("generator", "dicts") else 20)
    values, labels = whole(dataset.part(13, 4).batches(3))
    assert labels.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(values, x[1:5])


def test_samples_need_no_label(file):
    (batch,) = open_dataset(f"{file}:ARRAYS", model()).batches(99)
    assert (batch.size, batch.labels) == (12, None)


def test_a_part_is_read_by_number_or_from_its_shard(file):
    dataset = open_dataset(f"{file}:ByNumber", model())
    module = sys.modules["tracer_source_samples"]
    module.ByNumber.read.clear()
    assert [batch.size for batch in dataset.part(9, 2).batches(8)] == [2]
    assert module.ByNumber.read == [9, 10]
    dataset = open_dataset(f"{file}:Shards", model())
    module = sys.modules["tracer_source_samples"]  # read again
    module.Shards.asked.clear()
    _, labels = whole(dataset.part(700, 100).batches(64))
    assert labels.tolist() == list(range(700, 800))
    assert set(module.Shards.asked) == {(2, 8), (3, 8)}  # samples 500 to 999


def test_images_are_prepared_as_those_of_other_data_sets(file):
    values, _ = whole(open_dataset(f"{file}:pictures", images(shape="3,8,8")).batches(2))
    assert values.shape == (2, 3, 8, 8)
    assert [values[0].max(), values[1].min()] == [0, 1]
    pytest.importorskip("PIL")
    values, labels = whole(open_dataset(f"{file}:pillow", images(shape="1,4,4")).batches(2))
    assert values.shape == (2, 1, 4, 4)
    assert labels.tolist() == [0, 255]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "samples.py has no 'missing'"),
        ("number", "a int, which holds no samples"),
        ("nothing", "holds no samples"),
        ("ITERATOR", "an iterator, which can be read only once. NAME is, or returns"),
        ("texts", "sample 0 has a list, which is no array"),
        ("fails", r"raised OSError: the disk is on fire \(.*samples.py, line {line}\)"),
        ("changes", "sample 1 has no label, as the first one has"),
        ("Uneven", r"shard\(0, 8\) has 249 samples, not 250. Shard i of n has"),
    ],
)
def test_objects_that_hold_no_samples_are_refused(file, name, message):
    line = FILE.splitlines().index('    raise OSError("the disk is on fire")') + 1
    with pytest.raises(InputError, match=message.replace("{line}", str(line))):
        list(open_dataset(f"{file}:{name}", model()).batches(1))


def test_a_file_that_is_missing_or_fails_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none.py: no such file. NAME is, or returns, samples"):
        open_dataset(f"{tmp_path}/none.py:NAME", model())
    (tmp_path / "broken.py").write_text("x = (")
    with pytest.raises(InputError, match=r"broken.py raised SyntaxError.*line 1"):
        open_dataset(f"{tmp_path}/broken.py:NAME", model())


def test_a_map_style_data_set_of_torch_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "tensors.py").write_text(
        "import torch\nfrom torch.utils.data import TensorDataset\n"
        "DATA = TensorDataset(torch.eye(5, 3), torch.arange(5))\n"
    )
    values, labels = whole(open_dataset(f"{tmp_path}/tensors.py:DATA", model()).batches(2))
    np.testing.assert_array_equal(values, torch.eye(5, 3).numpy())
    assert labels.tolist() == [0, 1, 2, 3, 4]
