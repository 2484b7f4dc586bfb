"""Which nodes saturate in 8 bits: a product whose saturated sums are known in advance."""

from dataclasses import replace

import numpy as np
import pytest

import tracer
from tests.graphs import parse
from tests.tracer.tuning.told import findings, machine
from tracer.containment.activity import silent
from tracer.tuning import candidates, changes
from tracer.tuning.candidates import Candidate
from tracer.tuning.changes import Step

WIDTH = 64
MODEL = f"""
<ir_version: 8, opset_import: ["": 17]>
g (float[1,{WIDTH}] x) => (float[1,{WIDTH}] y) {{ y = MatMul (x, w) }}
"""


def candidate(positive, value="u8s8", change="static_int8"):
    """A product in 8 bits of equal inputs, whose first `positive` columns are the largest weights.

    A pair of such products is 2 x 255 x 127, which is beyond 16 bits; other columns are 0.
    """
    weights = np.zeros((WIDTH, WIDTH), np.float32)
    weights[:, :positive] = 1.0
    found = findings(parse(MODEL, w=weights))
    feeds = {"x": np.ones((1, WIDTH), np.float32)}
    base = replace(found.setup, feedset=replace(found.feedset, feeds=feeds))
    step = Step(changes.find(change), value)
    return Candidate((step,), setup=step.apply(base))


OLD, NEW = machine(flags=("avx2", "avx512f")), machine(flags=("avx2", "avx512_vnni"))


@pytest.mark.parametrize("positive", [3, 17])
def test_the_sums_that_saturate_are_counted_and_their_node_is_named(positive):
    (note,) = candidates.saturation_notes([candidate(positive)], OLD, 60.0, silent)
    assert note.startswith(f"static_int8=u8s8: {positive} sums of ")
    assert "saturate" in note


def test_no_sum_of_narrowed_weights_saturates(tmp_path):
    """Emulated, where all 64 sums of the weights as they are would."""
    np.savez(tmp_path / "x.npz", x=np.ones((1, WIDTH), np.float32))
    changed, before = candidate(64, "u8s8 narrowed"), candidate(64, "u8s8")
    inputs, pairs = tmp_path / "x.npz", "x86-maddubs"
    found = [
        tracer.interpret(each.setup.model.proto, accumulator=pairs, inputs=inputs)
        for each in (changed, before)
    ]
    sums = [each.nodes["outputs_changed"].sum() for each in found]
    assert sums == [0, WIDTH]


def test_where_no_sum_saturates_that_is_said():
    (note,) = candidates.saturation_notes([candidate(0)], OLD, 60.0, silent)
    assert note == (
        "static_int8=u8s8: no sum saturates on these inputs, as this processor adds pairs of "
        "products"
    )


def test_a_processor_with_vnni_and_unsigned_weights_need_no_note():
    assert not list(candidates.saturation_notes([candidate(3)], NEW, 60.0, silent))
    assert not list(candidates.saturation_notes([candidate(3, "u8u8")], OLD, 60.0, silent))


def test_what_takes_too_long_to_emulate_is_a_risk_that_is_said():
    (note,) = candidates.saturation_notes([candidate(3)], OLD, 0.0, silent)
    assert "may saturate at 16 bits; emulating them failed" in note
