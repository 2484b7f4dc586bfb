"""The page of providers has what was measured on a card."""

import json

import pytest

from tests.card import page, products_page
from tests.card.parts import COMMITTED

DOCUMENT = {
    "parts": {
        "machine": {"result": {
            "date": "2026-01-02T03:04:05+00:00", "torch": {"cuda": "13.0", "version": "2.11.0"},
            "card": {"name": "Card X", "driver_version": "580.1"}}},
        "provider": {"result": {"onnxruntime": {"version": "1.31.1"}, "networks": {
            "lenet batch 1": {
                "profile": {"kernels": 12, "on_cpu": ["a"], "device_us": 27.276,
                            "wall_us": 1220.59},
                "graph": {"error": "no seconds were left"}},
            "gpt batch 1": {"profile": {"error": "none"}}, "gpt batch 2": {"error": "none"}}}},
    }
}  # fmt: skip


def test_a_row_for_each_network_that_was_profiled():
    text = page.section(DOCUMENT)
    assert "Measured on 2026-01-02, Card X, driver 580.1, CUDA 13.0," in text
    assert "| lenet, 1 | 12 | 1 | 1,220.6 | 27.3 |  |" in text and "gpt" not in text


def test_only_what_is_between_the_marks_is_replaced():
    text = f"before\n{page.BEGIN}old\n{page.END}after\n"
    assert page.page_with(text, "new\n") == f"before\n{page.BEGIN}new\n{page.END}after\n"


@pytest.mark.parametrize("path", page.pages(), ids=str)
def test_the_page_is_that_of_the_committed_measurement(path):
    text = path.read_text(encoding="utf-8")
    if not COMMITTED.exists():
        pytest.skip("`python -m tests.card -o tests/card/card.json` has not run on a card yet")
    written = page.pages()[path](json.loads(COMMITTED.read_text(encoding="utf-8")))
    assert page.page_with(text, written) == text, "python -m tests.card.page"


def test_rows_of_products_say_the_rule_or_that_none_is_known():
    case = {"op": "mm", "dtype": "fp16", "m": 8, "n": 8, "k": 64, "options": ["out=fp32"]}
    known = {"case": case, "equal": 1.0, "by": "probes", "spec": "tc:h100", "text": "x; y"}
    parts = DOCUMENT["parts"] | {
        "products": {"result": {"products": [
            known, {**known, "by": "trial", "spec": None, "text": "2 sums; rounded to fp16"},
            {**known, "equal": 0.5}, {"case": case, "error": "none"}]}},
        "network": {"result": {"networks": {
            "lenet fp16": [{"equal": {"after": 1.0, "twice": 0.7}}, {"equal": {"": 0.998}}],
            "broken": {"error": "none"}}}},
    }  # fmt: skip
    text = products_page.section({"parts": parts})
    assert "2 of 3 products" in text
    assert "| `torch.mm` fp16, to fp32 | 8x8x64 | `tc:h100` | 100.0% |" in text
    assert "| 2 sums (tried) | 100.0% |" in text and "| not known | 50.0% |" in text
    assert "| lenet fp16 | 2 | 1 | 99.80% |" in text and "broken" not in text
