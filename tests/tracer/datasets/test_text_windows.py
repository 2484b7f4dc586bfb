"""text:FILE: windows of bytes with the bytes that follow, for models with and without a cache."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset

INPUTS = "int64[batch, sequence] input_ids"


def model(inputs=INPUTS, tokens="input_ids"):
    text = f"""<ir_version: 10, opset_import: ["": 20]> g ({inputs}) => (int64[batch, s] y)
        {{ y = Identity ({tokens}) }}"""
    return loading.from_proto(onnx.parser.parse_model(text))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(range(100, 175)))
    return path


def test_windows_and_labels_are_the_bytes_in_order(text):
    batches = list(open_dataset(f"text@8:{text}", model()).batches(4))
    tokens = np.concatenate([batch.inputs["input_ids"] for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    assert [batch.size for batch in batches] == [4, 4, 1]
    assert tokens.dtype == labels.dtype == np.int64
    np.testing.assert_array_equal(tokens.ravel(), np.arange(100, 172))
    np.testing.assert_array_equal(labels.ravel(), np.arange(101, 173))


def test_a_limit_and_a_fixed_number_of_tokens_are_kept(text):
    fixed = model("int64[batch, 5] input_ids")
    dataset = open_dataset(f"text:{text}", fixed, limit=3)
    (batch,) = dataset.batches(10)
    assert dataset.samples == 3
    assert batch.inputs["input_ids"].shape == (3, 5)


def test_masks_positions_and_empty_caches_are_filled(text):
    inputs = (
        f"{INPUTS}, int64[batch, all] attention_mask, int64[batch, sequence] position_ids, "
        "float[batch, 2, past, 4] past_key, "
        "float16[batch, 2, past, 4] past_value"
    )
    (batch, *_) = open_dataset(f"text@8:{text}", model(inputs)).batches(2)
    np.testing.assert_array_equal(batch.inputs["attention_mask"], np.ones((2, 8), np.int64))
    np.testing.assert_array_equal(batch.inputs["position_ids"], [np.arange(8)] * 2)
    assert batch.inputs["past_key"].shape == (2, 2, 0, 4)
    assert batch.inputs["past_value"].dtype == np.float16


def test_the_fingerprint_is_that_of_the_text_not_of_the_file_name(text, tmp_path):
    other = tmp_path / "other.txt"
    other.write_bytes(text.read_bytes())
    changed = tmp_path / "changed.txt"
    changed.write_bytes(text.read_bytes().replace(b"d", b"e", 1))
    first, second, third = (
        open_dataset(f"text@8:{each}", model()).fingerprint() for each in (text, other, changed)
    )
    assert first == second != third


@pytest.mark.parametrize(
    ("content", "window", "message"),
    [(b"", 8, "0 bytes are no window of 8"), (b"12345678", 8, "8 bytes are no window of 8")],
)
def test_a_text_without_a_window_is_refused(content, window, message, tmp_path):
    path = tmp_path / "short.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_dataset(f"text@{window}:{path}", model())


def test_a_missing_file_and_a_window_of_nothing_are_refused(text, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_dataset(f"text:{tmp_path / 'none.txt'}", model())
    with pytest.raises(UsageError, match="windows of 0 tokens"):
        open_dataset(f"text@0:{text}", model())


@pytest.mark.parametrize(
    ("inputs", "tokens", "message"),
    [
        ("float[batch, 3, 8, 8] x", "x", "one input of integers"),
        (f"{INPUTS}, int64[batch, s] other", "input_ids", "one input of integers"),
        (f"{INPUTS}, float[batch, 4] scale", "input_ids", "does not fill input 'scale'"),
        (f"{INPUTS}, float[batch, 2, 9, 4] past", "input_ids", "does not fill input 'past'"),
    ],
)
def test_a_model_that_takes_no_text_is_refused(inputs, tokens, message, text):
    kind = "float[batch, 3, 8, 8]" if tokens == "x" else "int64[batch, s]"
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g ({inputs}) => ({kind} y)'
        f"{{ y = Identity ({tokens}) }}"
    )
    with pytest.raises(InputError, match=message):
        open_dataset(f"text@8:{text}", loading.from_proto(proto))
