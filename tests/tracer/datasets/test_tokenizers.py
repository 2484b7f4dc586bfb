"""text@tokenizer.json:FILE: the tokens of Hugging Face's tokenizers, and their bits per byte."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest

from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.opening import open_dataset
from tracer.metrics import default_metric, find, suited

tokenizers = pytest.importorskip("tokenizers")
TEXT = "".join(f"Löwe {n} sah {n * 7} Mäuse — und {'😀' * (n % 3)} lief.\n" for n in range(60))
VOCABULARY = 300


def model(path, vocabulary=VOCABULARY):
    text = f"""<ir_version: 10, opset_import: ["": 20]>
        g (int64[batch, sequence] input_ids) => (float[batch, sequence, {vocabulary}] logits)
        <float[{vocabulary}, {vocabulary}] table> {{ logits = Gather (table, input_ids) }}"""
    proto = onnx.parser.parse_model(text)
    table = np.random.default_rng(0).standard_normal((vocabulary, vocabulary)).astype("float32")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(proto, path)
    return loading.load(path)


@pytest.fixture
def folder(tmp_path):
    """A folder with a text and a byte-level BPE that was trained on it."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT], vocab_size=VOCABULARY, show_progress=False)
    tokenizer.save(str(tmp_path / "bpe.json"))
    (tmp_path / "text.txt").write_text(TEXT, "utf-8")
    return tmp_path


def all_of(dataset):
    batches = list(dataset.batches(4))
    tokens = np.concatenate([batch.inputs["input_ids"] for batch in batches])
    return tokens, np.concatenate([batch.labels for batch in batches]), batches[0]


@pytest.mark.parametrize("limit", [None, 1, 5])
def test_windows_are_the_tokens_of_the_package(folder, limit):
    spec = f"text@8,{folder / 'bpe.json'}:{folder / 'text.txt'}"
    tokens, labels, batch = all_of(open_dataset(spec, model(folder / "m.onnx"), limit=limit))
    whole = tokenizers.Tokenizer.from_file(str(folder / "bpe.json"))
    expected = whole.encode(TEXT, add_special_tokens=False).ids
    windows = limit or (len(expected) - 1) // 8
    np.testing.assert_array_equal(tokens.ravel(), expected[: windows * 8])
    np.testing.assert_array_equal(labels.ravel(), expected[1 : windows * 8 + 1])
    assert len(whole.decode(expected[1 : windows * 8 + 1]).encode()) / labels.size == pytest.approx(
        batch.token_bytes, abs=4 / labels.size  # where the last token is a part of a character
    )  # fmt: skip


def test_bits_per_byte_are_the_bits_of_all_tokens_by_the_bytes_of_the_text(folder):
    loaded = model(folder / "m.onnx")
    spec = f"text@8,{folder / 'bpe.json'}:{folder / 'text.txt'}"
    _, labels, batch = all_of(open_dataset(spec, loaded))
    logits = np.random.default_rng(1).standard_normal((*labels.shape, VOCABULARY))
    metric = suited(find("bits-per-byte"), batch, logits)
    per_token = find("perplexity").scores({"logits": logits}, labels).mean()
    value = metric.value(metric.scores({"logits": logits}, labels))
    assert value * batch.token_bytes == pytest.approx(per_token)
    assert default_metric(batch, logits[:4]) is find("perplexity")


def test_a_byte_is_a_token_of_one_byte(folder):
    spec = f"text@8:{folder / 'text.txt'}"
    _, labels, batch = all_of(open_dataset(spec, model(folder / "m.onnx", 256)))
    assert batch.token_bytes == 1
    np.testing.assert_array_equal(labels.ravel(), np.frombuffer(TEXT.encode(), np.uint8)[1:][
        : labels.size])  # fmt: skip
    with pytest.raises(InputError, match="needs the bytes of a text"):
        suited(find("bits-per-byte"), Batch({}, 2, labels), np.zeros((2, 8, 256)))


def test_a_tokenizer_beside_the_model_is_taken(folder):
    (folder / "bpe.json").rename(folder / "tokenizer.json")
    loaded, text = model(folder / "m.onnx"), folder / "text.txt"
    beside, _, _ = all_of(open_dataset(f"text@8:{text}", loaded))
    named, _, _ = all_of(open_dataset(f"text@8,{folder / 'tokenizer.json'}:{text}", loaded))
    as_bytes, _, _ = all_of(open_dataset(f"text@8,bytes:{text}", loaded))
    np.testing.assert_array_equal(beside, named)
    assert as_bytes.size > beside.size


def test_a_tokenizer_of_another_model_is_refused(folder):
    text, bpe = folder / "text.txt", folder / "bpe.json"
    with pytest.raises(InputError, match=r"300 tokens, and .*m.onnx has 256 logits"):
        open_dataset(f"text@{bpe}:{text}", model(folder / "m.onnx", 256))
    large = model(folder / "large.onnx", 2000)
    with pytest.raises(InputError, match=r"2,000 logits, so its tokens are no bytes"):
        open_dataset(f"text:{text}", large)
    assert open_dataset(f"text@8,bytes:{text}", large).samples


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ("none.json", InputError, r"none.json: no such file. Name a tokenizer.json"),
        ("text.txt", InputError, "text.txt: not a tokenizer"),
        ("8,9", UsageError, "'8,9' is not a window and a tokenizer"),
        ("bytes,bpe.json", UsageError, "is not a window and a tokenizer"),
        ("8,", UsageError, "is not a window and a tokenizer"),
        ("5000,bpe.json", InputError, r"tokens are no window of 5000"),
    ],
)
def test_options_that_name_no_tokenizer_are_refused(folder, monkeypatch, options, error, message):
    monkeypatch.chdir(folder)
    with pytest.raises(error, match=message):
        open_dataset(f"text@{options}:text.txt", model("m.onnx"))


def test_a_text_that_is_not_utf_8_is_refused(folder):
    (folder / "latin.txt").write_bytes(TEXT.encode("latin-1", "replace"))
    with pytest.raises(InputError, match="byte 1 is not UTF-8"):
        open_dataset(f"text@{folder / 'bpe.json'}:{folder / 'latin.txt'}", model(folder / "m.onnx"))


def test_a_missing_package_is_named_with_its_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"needs 'tokenizers'.*pip install 'tracer-onnx\[text\]'"):
        open_dataset(f"text@{folder / 'bpe.json'}:{folder / 'text.txt'}", model(folder / "m.onnx"))
