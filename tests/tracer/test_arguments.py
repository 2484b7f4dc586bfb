"""A wrong argument is refused by its name, before any work, in every function of the API."""

import inspect
from dataclasses import make_dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import tracer
from tests.graphs import residual
from tracer.analyzers.options import ViewOptions
from tracer.api._calls import Contained, contained
from tracer.api.compare import SideSettings
from tracer.cli import _options
from tracer.errors import TracerError, UsageError
from tracer.limits import Limits
from tracer.support.arguments import (
    BOUNDS,
    RULES,
    Rule,
    amount,
    check_arguments,
    integer,
    maybe,
    option,
    swept,
)
from tracer.support.tolerance import Tolerance
from tracer.whatif.options import WhatIfOptions

FUNCTIONS = {
    tracer.profile: (residual(),),
    tracer.profile_framework: ("net.py:Net",),
    tracer.count: (residual(),),
    tracer.interpret: (residual(),),
    tracer.fusions: (residual(),),
    tracer.quantize: (residual(), "digits"),
    tracer.what_if: (residual(), "12:32", "digits"),
    tracer.compare: (["a.onnx", "b.onnx"],),
    tracer.sweep: (["a.onnx"], [1, 2]),
    tracer.export: ("net.py:Net", "net.onnx"),
    tracer.load: ("run.trace",),
}
"""Each function, with what it needs besides."""

WRONG = {
    **{name: [least - 1, 10**30, -1, True, 1.5, "3", np.float32(2), [0.5]]
       for name, (least, _) in BOUNDS.items()},
    "threads": [-1, 1025, True, "2", 1.0],
    "min_time": [-1, float("nan"), float("inf"), "1", True],
    "dims": [{"n": -1}, {"n": 1.5}, {"n": True}, {"n": 10**30}, {3: 4}, [("n", 3)], "n=3"],
    "inputs": [5, "", [5], {"x": object()}],
    "limits": [5, {}, Tolerance()],
    "tolerance": [0.1, (1e-3, 1e-5), Limits()],
    "accumulator": [True, 1.5, -3],
    "options": [{}, "fast", Limits()],
    "progress": [1, "yes"],
    "force": [1, "yes", None],
    "batches": [4, [], [0], "1,2", [1, True]],
    "sides": ["a.onnx", [], [1, 2], [None]],
    "input_shape": [5, "1,3", (1, -1), (1, 2.0), []],
    "input_dtype": [3, [], [np.float32]],
    "path": [None, 5, ""],
    "data": [None, 5, ""],
    "calibrate": [0, [], ""],
    "convention": [None, 3],
    "executor": [None, 3],
    "optimization": [3, True, [3]],
    "provider": [3],
    "settings": [None, {}],
}  # fmt: skip

CASES = [
    pytest.param(function, name, value, id=f"{function.__name__}-{name}={value!r:.12}")
    for function in FUNCTIONS
    for name in inspect.signature(function).parameters
    for value in WRONG.get(name, ())
]


def called(function, **arguments):
    names = list(inspect.signature(function).parameters)
    needed = dict(zip(names, FUNCTIONS[function], strict=False))
    return function(**{**needed, **arguments})


@pytest.mark.parametrize(("function", "name", "value"), CASES)
def test_a_wrong_argument_is_named_with_what_is_allowed(function, name, value):
    with pytest.raises(UsageError) as caught:
        called(function, **{name: value})
    assert caught.value.what.startswith(f"{name} is ")
    assert caught.value.hint.startswith("Give ")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_every_argument_has_a_rule_that_allows_its_default(function):
    for name, parameter in inspect.signature(function).parameters.items():
        assert name in RULES or name == "options", name
        if parameter.default is not parameter.empty and name != "options":
            check_arguments({name: parameter.default})


@pytest.mark.parametrize("name", BOUNDS)
def test_the_ends_of_each_range_are_allowed_and_their_neighbours_are_not(name):
    least, most = BOUNDS[name]
    for value in (least, most, np.int64(least), np.uint32(most)):
        check_arguments({name: value})
    for value in (least - 1, most + 1):
        with pytest.raises(UsageError, match=f"{most:,}"):
            check_arguments({name: value})


def test_a_list_is_for_sweeps_alone():
    check_arguments({"batch": [1, 4]}, {"batch": swept(RULES["batch"])})
    with pytest.raises(UsageError, match=r"batch is \[1, 4\]"):
        tracer.count(residual(), batch=[1, 4])


class Net:
    """Like a module of torch, which need not be installed."""


Net.__module__ = "torch.nn.modules"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, r"model is an object of type builtins.NoneType.*Give a path"),
        (5, r"builtins.int, not an ONNX model"),
        (b"onnx", r"builtins.bytes, not an ONNX model"),
        (onnx.GraphProto(), r"GraphProto, not an ONNX model"),
        (Net(), r"torch.nn.modules.Net, not an ONNX model. Export it: tracer.export\(model"),
    ],
)
def test_what_is_no_model_is_named_with_what_to_do(model, message):
    for function in (tracer.profile, tracer.count, tracer.interpret, tracer.fusions):
        with pytest.raises(UsageError, match=message):
            function(model)
    with pytest.raises(UsageError, match=message):
        tracer.what_if(model, "12:14", "digits")


def test_a_single_width_is_not_a_range_of_widths():
    with pytest.raises(UsageError, match=r"accumulator is 18\. Give widths, as '12:32'"):
        tracer.what_if(residual(), 18, "digits")


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Limits(tensor_bytes=-1), "tensor_bytes"),
        (lambda: Limits(seconds="5"), "seconds"),
        (lambda: Tolerance(relative=-1), "relative"),
        (lambda: Tolerance(absolute=float("nan")), "absolute"),
        (lambda: SideSettings(threads=-1), "threads"),
        (lambda: SideSettings(batch=0), "batch"),
        (lambda: WhatIfOptions(orders="sequential"), "orders"),
        (lambda: WhatIfOptions(batch=0), "batch"),
        (lambda: WhatIfOptions(accuracy_budget=-1), "accuracy_budget"),
        (lambda: WhatIfOptions(weight_bits=(0,)), "weight_bits"),
    ],
)
def test_records_of_options_check_their_fields(make, name):
    with pytest.raises(UsageError, match=f"^{name} is "):
        make()


@pytest.mark.parametrize("value", [5, None, {}, ""])
def test_what_is_merged_is_a_trace_or_its_path(value):
    with pytest.raises(UsageError, match=r"traces is .* Give a list, each a path; or a tracer"):
        tracer.merge(tracer.count(residual()), value)


def test_what_is_saved_is_a_result(tmp_path):
    with pytest.raises(UsageError, match=r"result is 5\. Give a tracer\.records\.result\.Result"):
        tracer.save(5, tmp_path / "x.json")
    trace = tracer.count(residual())
    with pytest.raises(UsageError, match=r"options is \{\}"):
        tracer.save(trace, tmp_path / "x.json", {})
    assert tracer.save(trace, tmp_path / "x.json", ViewOptions(top=2)) == Path(tmp_path / "x.json")


def test_a_long_value_is_cut():
    with pytest.raises(UsageError) as caught:
        check_arguments({"batch": list(range(10_000))})
    assert len(str(caught.value)) < 200
    with pytest.raises(UsageError):
        check_arguments({"x": -1}, {"x": amount("seconds")})
    with pytest.raises(TracerError):
        check_arguments({"x": np.bool_(True)}, {"x": integer()})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (option("Bits.", None), "what Asked.bits may be: give it a rule, as in rule=integer"),
        (option("Bits.", None, rule=integer(1)), None),
        (option("Bits.", None, reads=("integer",)), None),
    ],
)
def test_a_number_that_no_rule_reads_is_refused_where_it_is_declared(declared, message):
    asked = make_dataclass("Asked", [("bits", "int | None", declared)])
    if message is None:
        _options.declared(asked)
        return
    with pytest.raises(TypeError, match=message):
        _options.declared(asked)
    checked = make_dataclass(
        "Asked", [("bits", "int | None", 8)], bases=(Contained,), frozen=True, kw_only=True
    )
    with pytest.raises(TypeError, match=message):
        contained(checked)


def test_former_words_of_arguments_still_work_and_name_those_of_today(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3, 32, 32), np.float32))
    with pytest.warns(DeprecationWarning, match="feeds is now inputs") as warned:
        trace = tracer.count("models/lenet/lenet.onnx", feeds=tmp_path / "x.npz")
    assert [Path(each.filename).name for each in warned] == [Path(__file__).name]
    assert trace.settings["feeds"] == str(tmp_path / "x.npz")
    with pytest.warns(DeprecationWarning, match="arguments is now args"):
        settings = SideSettings(arguments={"depth": 20})
    assert settings == SideSettings(args={"depth": 20})
    with pytest.raises(TypeError, match="feeds"):
        tracer.count(residual(), feeds="x.npz", inputs="x.npz")
    with pytest.raises(TypeError, match="folder"):
        tracer.count(residual(), folder="data")


def test_none_is_offered_once():
    with pytest.raises(UsageError) as caught:
        tracer.compare(["a.onnx", "b.onnx"], threads=1)
    assert str(caught.value).count("None") == 1
    word = Rule("'all', or None", lambda value: value in ("all", "None"))
    with pytest.raises(UsageError, match=r"Give 'all', or None, or None\.$"):
        check_arguments({"x": 1}, {"x": maybe(maybe(word))})


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: tracer.compare("a.onnx", "b.onnx"), "Without a name it takes: sides"),
        (lambda: tracer.quantize("a.onnx", data="digits"), "Give calibrate=…"),  # it is --data
    ],
)
def test_a_call_as_on_the_command_line_is_told_the_arguments_of_python(call, hint):
    with pytest.raises(TypeError, match=hint):
        call()
