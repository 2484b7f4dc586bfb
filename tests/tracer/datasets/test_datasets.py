"""Any data set as a model takes it: batches, what identifies it, and what is refused."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tracer.datasets.sets import images, model, table, whole, write_test_data
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.batch import SampleLayout
from tracer.inputs.datasets.opening import open_dataset

quick = settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])


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
    values, labels = whole(batches)
    np.testing.assert_array_equal(values, expected)
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
    from tracer.inputs.datasets.dataset import fingerprint

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
    assert SampleLayout.of(loading.Model(proto, None, "", ("Relu_0",))) == SampleLayout(
        frozenset(rows), batch
    )


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "svhn",
            UsageError,
            "no data set 'svhn'. Name one of cifar10, digits, mnist, an .npz",
        ),
        ("digits:validation", UsageError, "no data set 'digits:validation'.*:train after a name"),
        ("digits*0", UsageError, "cannot be repeated 0 times"),
        ("none.npz", InputError, "none.npz: no such file"),
        ("tests", InputError, "tests: holds no images, nor input_0.pb"),
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
    assert open_dataset(tmp_path, model(), split="train").samples == 1  # serves both
    with pytest.raises(UsageError, match="no split 'train'"):
        open_dataset(f"{tmp_path}:train", model())
