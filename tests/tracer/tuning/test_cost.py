"""How long quantising takes is estimated before it is done, and what would be too long is not."""

import numpy as np
import pytest

from tests.graphs import parse
from tests.tracer.tuning.test_search import searched, steps
from tests.tracer.tuning.told import findings
from tracer.tuning import candidates, changes
from tracer.tuning.changes import Step

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,{rows}] x) => (float[1,{rows}] y) {{ y = MatMul (x, w) }}
"""


def product(rows):
    return findings(parse(MODEL.format(rows=rows), w=np.ones((rows, rows), np.float32)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["static_int8", "dynamic_int8", "weights_4bit"])
def test_a_large_model_takes_some_time_and_a_small_one_is_not_estimated(name, monkeypatch):
    found = product(512)
    step = Step(changes.find(name), changes.find(name).values(found)[0])
    assert candidates.seconds_to_make(found.setup, step) == 0
    monkeypatch.setattr(candidates, "_SMALL", 1 << 10)
    assert candidates.seconds_to_make(found.setup, step) > 0
    assert candidates.seconds_to_make(found.setup, Step(changes.find("threads"), "1")) == 0


def test_the_time_grows_with_the_weights(monkeypatch):
    found, times = product(1024), iter([9.0, 1.0, 4.0])  # the first imports
    monkeypatch.setattr(candidates, "_SMALL", 1 << 10)
    monkeypatch.setattr(candidates, "_seconds_for", lambda step, columns: next(times))
    assert (
        candidates.seconds_to_make(found.setup, Step(changes.find("static_int8"), "u8s8")) == 4.0
    )  # 4 MiB


@pytest.mark.nightly
def test_what_would_take_longer_than_is_left_is_not_made(monkeypatch):
    monkeypatch.setattr(
        candidates,
        "seconds_to_make",
        lambda setup, step: 100.0 if step.change.effect == "quantize" else 0.0,
    )
    allowed = {"allow": frozenset({"quantize"}), "only": ("weights_4bit",)}
    result, _ = searched(product(64), lambda setup: 1 if is_float(setup) else 9, **allowed)
    assert steps(result) == []
    faults = {candidate.fault for candidate in result.candidates}
    assert faults == {"making it takes about 100 s, and 39 s are left: raise --max-seconds"}
    result, _ = searched(
        product(64), lambda setup: 9 if is_float(setup) else 1, **allowed, seconds=600.0
    )
    assert len(steps(result)) == 1


def is_float(setup):
    return all(node.op_type != "MatMulNBits" for node in setup.model.graph.node)
