"""Differences and records: exact on numbers one can do by hand, and with a fake clock."""

import math

import numpy as np
import onnx
from onnx import helper

from tracer.graph import loading
from tracer.graph.model import Node, Scope
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Recorder, statistics
from tracer.support.tolerance import Tolerance, compare

EXACT = Tolerance(0, 0)


def f32(*numbers):
    return np.array(numbers, np.float32)


def test_types_and_kinds_must_be_the_same():
    assert compare(f32(1), np.ones(1), EXACT).fault == "float32[1] is not float64[1]"
    assert compare([f32(1)], [f32(3)], EXACT).max_abs == 2
    assert compare([f32(1)], [], EXACT).fault
    text = np.array(["a"], object)
    assert compare(text, text.copy(), EXACT).fault == ""
    assert compare(text, np.array(["b"], object), EXACT).fault == "the values differ"
    assert compare(None, None, EXACT).fault == ""


def test_statistics_leave_out_what_is_not_finite():
    measured = statistics(f32(1, 3, math.nan, math.inf, -math.inf))
    assert (measured.minimum, measured.maximum, measured.mean, measured.nan, measured.inf) == (
        1,
        3,
        2,
        1,
        2,
    )
    empty = statistics(f32(math.nan))
    assert (empty.minimum, empty.mean, empty.nan) == (None, None, 1)
    assert statistics(np.array(["x"], object)) is None


def test_own_time_is_without_what_runs_inside():
    ticks = iter(range(0, 100_000, 1000))
    recorder = Recorder(describe=False, clock=lambda: next(ticks))
    outer, inner = (
        Node(key, 0, "If", "", helper.make_node("If", [], []), Scope(onnx.GraphProto()), (), ())
        for key in ("outer", "inner")
    )
    recorder.before(outer, [])  # ticks 0 and 1
    for _ in range(2):
        recorder.before(inner, [])  # 2 and 3, then 6 and 7
        recorder.after(inner, [], [])  # 4 and 5, then 8 and 9
    recorder.after(outer, [], [])  # 10
    assert recorder.records["inner"].time_us == 2  # 3 to 4, and 7 to 8
    assert recorder.records["inner"].calls == 2
    assert recorder.records["outer"].time_us == 9 - 6  # 1 to 10, less 2 to 5 and 6 to 9


def test_describing_values_is_in_no_time(monkeypatch):
    now = [0]
    recorder = Recorder(clock=lambda: now[0], expected={"y": f32(1)}, tolerance=EXACT)
    monkeypatch.setattr(
        "tracer.interpreter.observers.statistics", lambda value: now.__setitem__(0, now[0] + 7000)
    )
    node = Node("n", 0, "Relu", "", helper.make_node("Relu", ["x"], ["y"]),
                Scope(onnx.GraphProto()), ("x",), ("y",))  # fmt: skip
    recorder.before(node, [f32(3)])
    now[0] += 2000
    recorder.after(node, [f32(3)], [f32(3)])
    assert (recorder.records["n"].time_us, recorder.own_us) == (2, 7)
    assert recorder.records["n"].difference.max_abs == 2


def test_texts_of_reference_operators_are_strings_without_statistics():
    model = loading.from_proto(onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 10]> g (string[2] x) => (string[2] y)'
        '{ y = StringNormalizer<case_change_action="UPPER">(x) }'
    ))  # fmt: skip
    recorder = Recorder()
    Interpreter(model, observers=[recorder]).run(None, {"x": np.array(["a", "bc"], object)})
    (record,) = recorder.records.values()
    ((_, outputs),) = record.types
    assert [output.dtype for output in outputs] == ["string"]
    assert record.statistics is None
