"""What-ifs of the small Llama on text: perplexity, agreement on the next token, widths by block."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tracer
from models import families
from tracer.graph.loading import open_model
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.request import Samples
from tracer.metrics import find
from tracer.whatif.options import WhatIfOptions

LLAMA = families.shipped("llama", "torch")
INT4 = LLAMA.with_suffix(".int4.onnx")
TEXT = "text@16:models/data/texts/kjv.test.txt"
SMALL = WhatIfOptions(limit=6, batch=6, search=False)


def logits(accumulator):
    """The logits of the windows with the sums of `tracer.interpret` in an accumulator."""
    outputs = []
    tracer.interpret(
        INT4, accumulator=accumulator, batch=6, in_process=True, inputs=Samples(TEXT, 6),
        receive=lambda feeds, values: outputs.append(values[0]),
    )  # fmt: skip
    return outputs[0]


@pytest.mark.nightly
def test_perplexity_by_width_is_that_of_runs_in_the_width():
    result = tracer.what_if(INT4, "11:16", TEXT, SMALL, in_process=True)
    (variant,) = result.variants
    assert result.judgement.metric == "perplexity"
    assert result.judgement.budget == 0.05
    (batch,) = open_dataset(TEXT, open_model(INT4), limit=6).batches(6)
    scores = {row.bits: row.score for row in variant.answer.rows}
    for bits in (11, 13):
        expected = find("perplexity").scores({"logits": logits(bits)}, batch.labels).mean()
        assert scores[bits] == pytest.approx(expected, abs=1e-6)
    assert scores[11] > scores[13] > scores[16] - 1e-6
    choice = variant.answer.uniform
    assert choice is not None
    assert choice.score <= variant.answer.score + 0.05


def needed(proto, node):
    """The bits of the largest sum of a block: 127 times the sum of the codes' distances."""
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    codes, zeros = (weights[node.input[index]] for index in (1, 3))
    nibbles = np.stack((codes & 15, codes >> 4), -1).reshape(*codes.shape[:2], -1).astype(int)
    packed = zeros.reshape(len(codes), -1)
    points = np.stack((packed & 15, packed >> 4), -1).reshape(len(codes), -1)[:, : codes.shape[1]]
    largest = 127 * np.abs(nibbles - points[..., None]).sum(2).max()
    return int(largest).bit_length() + 1


@pytest.mark.nightly
def test_the_guaranteed_width_of_a_node_holds_the_sums_of_its_blocks():
    proto = onnx.load(INT4)
    result = tracer.what_if(INT4, "16", TEXT, SMALL, in_process=True)
    sums = {each.node: each for each in result.variants[0].answer.sums}
    nodes = [node for node in proto.graph.node if node.op_type == "MatMulNBits"]
    assert list(sums) == [node.name for node in nodes]
    assert len(nodes) == 22  # seven products in each layer, and the head
    for node in nodes:
        assert sums[node.name].guaranteed == needed(proto, node), node.name
        assert sums[node.name].tally.bits_observed.max() <= sums[node.name].guaranteed
    assert any("node_MatMul_135" in note for note in result.notes)  # attention's products stay wide


def test_agreement_is_that_of_the_next_token():
    options = WhatIfOptions(limit=6, batch=6, search=False, metric="agreement")
    result = tracer.what_if(INT4, "12:13", TEXT, options, in_process=True)
    scores = {row.bits: row.score for row in result.variants[0].answer.rows}
    wide, narrow = logits(32), logits(12)
    expected = 100 * (wide.argmax(2) == narrow.argmax(2)).mean()
    assert scores[12] == pytest.approx(expected)
    assert 0 < scores[12] < scores[13] <= 100


@pytest.mark.nightly
def test_families_of_accumulators_are_scored_on_text():
    options = WhatIfOptions(limit=6, batch=6)
    result = tracer.what_if(LLAMA, "fp32,bf16,e4m3", TEXT, options, in_process=True)
    fp32, bf16, e4m3 = (row.score for row in result.rows)
    assert fp32 == pytest.approx(result.score, abs=1e-4)
    assert fp32 < bf16 < e4m3
