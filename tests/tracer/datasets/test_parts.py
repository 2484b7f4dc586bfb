"""Parts of a data set, for other processes: together they are the whole, for every source."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tracer.datasets.sets import (
    images,
    model,
    table,
    write_image,
    write_tar,
    write_test_data,
)
from tracer import metrics
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.dataset import choose_samples
from tracer.inputs.datasets.opening import open_dataset, reopened
from tracer.whatif import variants
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.reuse import StoredBatches

quick = settings(examples(48), suppress_health_check=[HealthCheck.function_scoped_fixture])
COUNT = 23


def numbers() -> np.ndarray:
    return np.arange(COUNT * 3, dtype=np.float32).reshape(COUNT, 3)


def archive(save, order="C"):
    def write(folder: Path):
        path = table(folder, save, x=np.asarray(numbers(), order=order), labels=np.arange(COUNT))
        return str(path), model()

    return write


def folders(folder: Path):
    x, start = numbers(), 0
    for index, size in enumerate((1, 200, 2, 5, 7, 3)):  # 200 takes two bytes in a file
        rows = np.resize(x[start:], (size, 3))
        write_test_data(folder / f"test_data_set_{index}", rows, -rows)
        start += size % COUNT
    return str(folder), model()


def text(folder: Path):
    path = folder / "prose.txt"
    path.write_bytes(bytes(range(97, 97 + 26)) * 8)
    return f"text@9:{path}", model("int64[N,L] x", "int64[N,L] y", "y = Identity (x)")


def named(folder: Path):
    return "digits", images(shape="1,8,8")


def parquet(folder: Path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    for name, rows in (("a", slice(0, 9)), ("b", slice(9, COUNT))):
        columns = {"x": list(numbers()[rows]), "label": np.arange(COUNT)[rows]}
        files.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=4)
    return f"{folder}/*.parquet", model()


def tars(folder: Path):
    x = numbers()
    write_tar(folder / "part-0.tar", [(f"{i:06}", {"npy": x[i], "cls": i}) for i in range(9)])
    write_tar(folder / "part-1.tar", [(f"{i:06}", {"npy": x[i], "cls": i}) for i in range(9, 23)])
    return f"{folder}/part-{{0..1}}.tar", model()


def image_folder(folder: Path):
    for number in range(COUNT):
        write_image(folder / "val" / f"n{number % 3}" / f"{number:03}.png", number)
    return str(folder), images(shape="3,8,8")


def listed(folder: Path):
    (folder / "samples.py").write_text(USER)
    return f"{folder}/samples.py:LISTED", model()


def sharded(folder: Path):
    (folder / "samples.py").write_text(USER)
    return f"{folder}/samples.py:Sharded", model()


USER = f"""
import numpy as np

LISTED = [(x, i) for i, x in enumerate(np.arange({COUNT * 3}, dtype="float32").reshape(-1, 3))]


class Sharded:
    def __len__(self):
        return 300  # more than one shard

    def shard(self, i, n):
        for k in range(i * 300 // n, (i + 1) * 300 // n):
            yield {{"x": np.full(3, k, np.float32), "y": np.float32(k) / 2}}
"""

SOURCES = {
    "stored": archive(np.savez),
    "compressed": archive(np.savez_compressed),
    "fortran": archive(np.savez, "F"),
    "folders": folders,
    "text": text,
    "digits": named,
    "parquet": parquet,
    "tar": tars,
    "images": image_folder,
    "list": listed,
    "sharded": sharded,
}


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    return SOURCES[request.param](tmp_path)


def content(batches):
    """Everything that is in some batches, with its place: what two readings must agree in."""
    return [
        (
            batch.size,
            batch.token_bytes,
            None if batch.labels is None else batch.labels.tobytes(),
            {name: (v.dtype, v.shape, v.tobytes()) for name, v in batch.inputs.items()},
            {name: v.tobytes() for name, v in (batch.outputs or {}).items()},
        )
        for batch in batches
    ]


@pytest.mark.one_in(3)
@quick
@given(data=st.data())
def test_parts_are_the_whole_batch_by_batch(source, data):
    spec, loaded = source
    size = data.draw(st.integers(1, 90), "size of a batch")
    repeat = data.draw(st.integers(1, 3), "repeat")
    limit = data.draw(st.none() | st.integers(1, 300), "limit")
    whole = open_dataset(f"{spec}*{repeat}", loaded, limit=limit)
    assert whole.samples is not None
    step = size * data.draw(st.integers(1, 4), "batches in a part")
    parts = [whole.part(first, step) for first in range(0, whole.samples, step)]
    assert [part.samples for part in parts[:-1]] == [step] * (len(parts) - 1)
    assert sum(part.samples for part in parts) == whole.samples
    joined = [batch for part in parts for batch in part.batches(size)]
    assert content(joined) == content(whole.batches(size))


@pytest.mark.one_in(3)
@quick
@given(data=st.data())
def test_any_part_has_the_samples_of_a_slice(source, data):
    spec, loaded = source
    whole = open_dataset(f"{spec}*2", loaded, limit=data.draw(st.none() | st.integers(1, 300)))
    places = st.integers(0, 500)
    first, count, inner, few = (data.draw(places) for _ in range(4))
    rows = content(whole.batches(1))
    part = whole.part(first, count)
    assert content(part.batches(1)) == rows[first : first + count]
    assert part.samples == len(rows[first : first + count])
    assert (
        content(part.part(inner, few).batches(1))
        == rows[first : first + count][inner : inner + few]
    )


@pytest.mark.one_in(3)
@quick
@given(data=st.data())
def test_a_description_opens_the_same_samples(source, data):
    spec, loaded = source
    whole = open_dataset(f"{spec}*2", loaded, limit=data.draw(st.none() | st.integers(1, 40)))
    picked = data.draw(st.sets(st.integers(0, whole.samples - 1), min_size=1))
    first, count = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 50))
    some = choose_samples(whole, np.array(sorted(picked)))
    for dataset in (
        whole,
        whole.part(first, count),
        some,
        some.part(first, count),
        choose_samples(some.part(0, 3), np.array([0])),
    ):
        sent = pickle.dumps(dataset.description)
        again = reopened(pickle.loads(sent), loaded)
        assert again.description == dataset.description
        assert content(again.batches(2)) == content(dataset.batches(2))
    assert len(pickle.dumps(whole.description)) < 2000


def test_a_description_is_read_in_another_process_and_folder(tmp_path, monkeypatch):
    """Relative paths are those of the folder where the data set was opened."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "away").mkdir()
    path = archive(np.savez)(tmp_path)[0]
    onnx.save(model().proto, "model.onnx")
    part = open_dataset(f"{Path(path).name}*2", model()).part(20, 9)
    assert part.description.base == "set.npz"
    code = (
        "import pickle, sys; from tracer.graph import loading;"
        "from tracer.inputs.datasets.opening import reopened;"
        "read = reopened(pickle.load(sys.stdin.buffer), loading.load(sys.argv[1]));"
        "print(read.fingerprint(), read.name)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.onnx")],
        input=pickle.dumps(part.description),
        capture_output=True,
        cwd=tmp_path / "away",
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=True,
    )
    assert answer.stdout.decode().split() == [part.fingerprint(), "set.npz*2"]


def test_the_identity_of_a_data_set_is_that_of_the_reopened_one(source, tmp_path):
    spec, loaded = source
    whole = open_dataset(f"{spec}*2", loaded, limit=30)
    again = reopened(pickle.loads(pickle.dumps(whole.description)), loaded)
    metric = metrics.find("agreement")
    identities = [
        variants.identity(
            loaded, batches, batches.dataset.fingerprint(), metric, WhatIfOptions(), ()
        )
        for batches in (StoredBatches(whole, 64), StoredBatches(again, 64))
    ]
    assert identities[0] == identities[1]
    places = f"{tmp_path}/", f"{tmp_path.parent}/"  # what is stored has no paths
    named = str(spec).replace(places[0], "").replace(places[1], "")
    assert identities[0]["data"].startswith(f"30 samples of {named}*2 (")


def test_a_dataset_itself_is_not_sent(tmp_path):
    path, loaded = archive(np.savez)(tmp_path)
    with pytest.raises(TypeError, match="send its `description`"):
        pickle.dumps(open_dataset(path, loaded))


def test_a_part_of_an_archive_is_read_without_what_precedes_it(tmp_path, monkeypatch):
    path, loaded = archive(np.savez)(tmp_path)
    part, nbytes = open_dataset(path, loaded).part(20, 2), []
    read = zipfile.ZipExtFile.read
    monkeypatch.setattr(
        zipfile.ZipExtFile, "read", lambda s, n=-1: (nbytes.append(n), read(s, n))[1]
    )
    ((values, labels),) = [(b.inputs["x"], b.labels) for b in part.batches(2)]
    np.testing.assert_array_equal(values, numbers()[20:22])
    assert labels.tolist() == [20, 21]
    assert sum(nbytes) < 2 * 150  # headers of two members


def test_an_archive_with_bytes_before_it_is_read_in_parts(tmp_path):
    """A ZIP file may follow others: places in it are not those in the file."""
    path, loaded = archive(np.savez)(tmp_path)
    Path(path).write_bytes(b"#!/bin/sh\n" * 7 + Path(path).read_bytes())
    (batch,) = open_dataset(path, loaded).part(21, 5).batches(8)
    np.testing.assert_array_equal(batch.inputs["x"], numbers()[21:])


@pytest.mark.parametrize("rows", [24, 2**40])
def test_a_part_beyond_the_bytes_of_a_member_is_refused(tmp_path, rows):
    path = table(tmp_path, x=numbers())
    with zipfile.ZipFile(path) as stored:
        member = stored.read("x.npy")
    old, new = f"({COUNT}, 3)".encode(), f"({rows}, 3)".encode()
    spaces = b" " * (len(new) - len(old)) + b"\n"
    with zipfile.ZipFile(path, "w") as longer:
        longer.writestr("x.npy", member.replace(old, new).replace(spaces, b"\n", 1))
    with pytest.raises(InputError, match="'x' ends before its last row"):
        list(open_dataset(path, model()).part(23, 5).batches(1))


def test_a_part_of_a_folder_reads_no_other_folder(tmp_path):
    spec, loaded = folders(tmp_path)
    dataset = open_dataset(spec, loaded)
    expected = content(dataset.part(204, 3).batches(3))
    for index in (0, 1, 2, 4, 5):
        for file in (tmp_path / f"test_data_set_{index}").iterdir():
            file.write_bytes(b"lost")
    assert content(dataset.part(204, 3).batches(3)) == expected


def test_parts_that_cannot_be_are_refused(tmp_path):
    path, loaded = archive(np.savez)(tmp_path)
    for first, count in ((-1, 3), (0, -1)):
        with pytest.raises(UsageError, match="Count from 0"):
            open_dataset(path, loaded).part(first, count)
    table(tmp_path, x=np.ones((5, 4, 3), np.float32))
    recurrent = model("float[5,N,3] x", "float[5,N,3] y")
    with pytest.raises(UsageError, match="cannot be cut into samples"):
        open_dataset(path, recurrent).part(0, 1)


def test_a_part_for_a_model_with_a_fixed_batch_is_padded_like_the_whole(tmp_path):
    path, _ = archive(np.savez)(tmp_path)
    four = model("float[4,3] x", "float[4,3] y")
    whole = open_dataset(path, four)
    parts = [whole.part(first, 8) for first in range(0, COUNT, 8)]
    joined = [batch for part in parts for batch in part.batches(None)]
    assert content(joined) == content(whole.batches(None))
    assert [batch.size for batch in joined] == [4, 4, 4, 4, 4, 3]


def test_the_tokenizer_beside_the_model_goes_with_the_description(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    table_of = {"[UNK]": 0, **{word: i + 1 for i, word in enumerate("abcdefgh")}}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(table_of, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "prose.txt").write_text("a b c d e f g h " * 9)
    loaded = model("int64[N,L] x", "int64[N,L] y", "y = Identity (x)")
    onnx.save(loaded.proto, tmp_path / "model.onnx")
    beside = loading.load(tmp_path / "model.onnx")
    dataset = open_dataset(f"text@4:{tmp_path / 'prose.txt'}", beside)
    elsewhere = reopened(dataset.description, loaded)  # a model in memory, with nothing beside it
    assert content(elsewhere.batches(3)) == content(dataset.batches(3))
    assert dataset.samples == 17  # 72 words, the first of which follows none
