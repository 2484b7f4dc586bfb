"""What Python adds to the command line: names, docstrings that run, results in a notebook, bars."""

import doctest
import html.parser
import inspect
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnx
import pandas as pd
import pytest

import tracer
from tests.graphs import residual
from tracer import cli
from tracer.analyzers.views import formats
from tracer.containment import activity
from tracer.errors import UsageError
from tracer.records.result import Result

LENET, INT8 = "models/lenet/lenet.onnx", "models/lenet/lenet.int8.onnx"


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(LENET, batch=2, runs=10, threads=1)


def test_every_error_is_a_name_of_the_package_and_its_module_is_there_after_the_import():
    code = (
        "import sys, tracer\n"
        "assert 'tracer.errors' not in sys.modules\n"
        "errors = {n for n, e in vars(tracer.errors).items()\n"
        "          if isinstance(e, type) and issubclass(e, Exception)}\n"
        "assert errors and all(getattr(tracer, n) is getattr(tracer.errors, n) for n in errors)\n"
        "assert errors < set(tracer.__all__)\n"
        "try: tracer.count('nowhere.onnx')\n"
        "except tracer.ModelError as error: print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Name an .onnx file or a folder with model.onnx.\n", "")


@pytest.mark.nightly
def test_a_table_and_charts_of_a_trace_are_those_of_its_files(trace, tmp_path):
    pytest.importorskip("matplotlib")
    table = pd.read_csv(trace.save(tmp_path / "t.csv"))
    assert trace.to_pandas()["node"].tolist() == table["node"].tolist()
    assert trace.to_pandas(tracer.ViewOptions(by="op"))["op_type"].is_unique
    for chart in ("", "roofline"):
        if not chart or trace.nodes["gflops_per_s"].notna().any():
            saved = trace.save(tmp_path / f"t.{chart}.png".replace("..", "."))
            assert trace.plot(chart)._repr_png_() == saved.read_bytes()
    with pytest.raises(tracer.UsageError, match="a Trace has no chart 'bars'"):
        trace.plot("bars")
    with pytest.raises(tracer.UsageError, match="It has none"):
        tracer.fusions(LENET).plot()


def test_every_class_of_results_has_a_table():
    def every(kind):
        return [kind, *(each for sub in kind.__subclasses__() for each in every(sub))]

    for name in tracer.__all__:
        getattr(tracer, name)
    kinds = every(Result)[1:]
    assert len(kinds) > 5
    assert all("csv" in formats(kind) for kind in kinds)


def test_traces_are_compared_by_identity(trace):
    """Tables and arrays are neither equal nor not: of each place something else is true."""
    again = tracer.count(LENET)
    assert trace == trace
    assert trace != replace(trace, notes=()) and again not in (trace, tracer.count(LENET))
    assert len({trace, again}) == 2


def test_the_slowest_rows_have_the_time_of_a_run_between_them(trace):
    slowest = trace.top(3)
    assert list(slowest.columns[:2]) == ["node", "op_type"]
    assert slowest["time_us"].is_monotonic_decreasing
    assert slowest["node"][0].startswith("node_Conv_22")
    assert trace.top(0, by="op")["time_us"].sum() == pytest.approx(trace.nodes["time_us"].sum())
    assert len(slowest) == 3
    two = tracer.count(LENET).top(2)
    assert two["macs"].tolist() == [352_800, 240_000]
    assert "time_us" not in two


def test_the_time_of_a_trace_is_the_median_of_its_one_run(trace):
    assert trace.wall_us == trace.runs[0].median_us
    assert trace.runs[0].wall_us.min() <= trace.wall_us <= trace.runs[0].wall_us.max()
    with pytest.raises(tracer.UsageError, match=r"lenet\.onnx: the trace has 0 runs, not one"):
        _ = tracer.count(LENET).wall_us


@pytest.mark.nightly
def test_overflow_is_counted_beside_the_times():
    both = tracer.profile(INT8, runs=5, accumulator=16, seed=1)
    counted = tracer.interpret(INT8, accumulator=16, seed=1)
    assert both.nodes["overflow_outputs"].sum() == counted.nodes["overflow_outputs"].sum() > 0
    assert both.nodes["time_us"].notna().any()
    with pytest.raises(tracer.UsageError, match="phases are those of an ONNX model, without"):
        tracer.profile(LENET, accumulator=16, prefill=8)


def test_an_argument_that_is_not_there_is_named_with_its_function():
    with pytest.raises(TypeError, match=r"profile\(\) got an unexpected .*'rums'\. .*'runs'"):
        tracer.profile(LENET, rums=3)
    with pytest.raises(TypeError, match=r"settings=tracer\.SideSettings\(sessions=…\)"):
        tracer.compare([LENET, INT8], sessions=3)


@pytest.mark.nightly
def test_traces_in_memory_are_compared_as_their_files_are(trace, tmp_path):
    other = tracer.profile(INT8, batch=2, runs=10, threads=1)
    paths = [each.save(tmp_path / f"{i}.trace") for i, each in enumerate((trace, other))]
    by_files, by_objects = tracer.compare(paths), trace.compare(other)
    assert by_objects.totals.drop(columns="side").equals(by_files.totals.drop(columns="side"))
    assert by_objects.totals["side"].tolist() == ["lenet.onnx", "lenet.int8.onnx"]
    assert trace.compare(paths[1], by="op").by == "op"


def test_a_result_says_in_a_line_what_it_is(trace):
    one = tracer.interpret(INT8, batch=60, accumulator=16)
    assert repr(one) == "Trace(lenet.int8.onnx, 32 nodes; reference, batch 60, 1 run)"
    assert re.fullmatch(r"Trace\(.*; onnxruntime, batch 2, \d+ runs of \d.* µs.*\)", repr(trace))
    assert repr(tracer.count(LENET)) == "Trace(lenet.onnx, 12 nodes; not run)"


class Elements(html.parser.HTMLParser):
    """The elements of a page: their names, attributes, and the text of cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells, self.seen = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            self.cells[-1][1] += data


def test_a_notebook_has_names_on_the_left_numbers_on_the_right_and_a_bar_for_the_time(trace):
    page = Elements(trace._repr_html_())
    sides = {text: cell["align"] for cell, text in page.cells}
    assert sides["node"] == sides["node_max_pool2d"] == "left"
    time = "time µs" if "time µs" in sides else "time ms"
    assert sides[time] == sides["share"] == "right"
    bars = [each["style"] for tag, each in page.seen if "background" in each.get("style", "")]
    assert 0 < len(bars) <= 10
    assert "width:5.00em" in bars[0]
    assert {tag for tag, _ in page.seen} <= {"div", "table", "tr", "th", "td", "details", "summary"}


def test_a_notebook_shows_ten_rows_and_how_many_more_there_are():
    text = tracer.count("models/resnet_cifar/resnet20.onnx")._repr_html_()
    assert text.count("<tr>") == 11
    assert "… 56 more rows" in text


def test_a_name_of_a_model_is_no_element_of_a_notebook():
    trace = tracer.count(LENET)
    evil = trace.nodes.assign(node=['<img src=x onerror="alert(1)">' + "n" * 60] * len(trace.nodes))
    object.__setattr__(trace, "nodes", evil)
    page = Elements(trace._repr_html_())
    assert "img" not in {tag for tag, _ in page.seen}
    assert any(cell.get("title", "").startswith("<img src=x") for cell, _ in page.cells)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("progress", "stream", "drawn"),
    [(None, Terminal, True), (None, io.StringIO, False), (True, io.StringIO, True),
     (False, Terminal, False)],
)  # fmt: skip
def test_long_work_draws_a_bar_where_somebody_sees_it(monkeypatch, progress, stream, drawn):
    monkeypatch.setattr(activity, "_DELAY_S", 0.0)
    monkeypatch.setattr(activity, "_REDRAW_S", 0.0)
    monkeypatch.setattr(activity, "_page", None)
    monkeypatch.setattr(sys, "stderr", stream())
    tracer.interpret(LENET, runs=3, progress=progress, in_process=True)
    assert ("| 1/3 [" in sys.stderr.getvalue()) is drawn


@pytest.mark.nightly
def test_short_work_draws_no_bar_and_imports_nothing_for_it():
    code = (
        "import io, sys, tracer\n"
        f"tracer.count({LENET!r}, progress=True)\n"
        "print('tqdm' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.nightly
def test_a_type_checker_knows_what_the_functions_return(tmp_path):
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        "import tracer\n"
        "trace = tracer.profile('m.onnx', runs=3, progress=False)\n"
        "wall: float = trace.wall_us\n"
        "comparison: tracer.Comparison = trace.compare(tracer.load('b.trace'), 'm.onnx')\n"
        "passed: bool = tracer.compare(['a.trace', trace]).passed\n"
        "try: tracer.narrow('m.onnx', 16, 'digits')\n"
        "except tracer.ModelError as error: hint: str = error.hint\n"
        "reveal_type(tracer.compare)\n"
        "tracer.profile('m.onnx', rums=3)\n"
    )
    out, _, _ = api.run(["--strict", "--config-file=", "--follow-imports=silent", str(program)])
    assert "Comparison" in out and 'keyword argument "rums"' in out
    assert out.count(": error:") == 1, out


def examples_of(each, name):
    """The examples in the documentation of a function or a class, with those of its methods."""
    found = doctest.DocTestFinder().find(each, name, module=False, globs={})
    return [example for example in found if example.examples]


PUBLIC = {name: getattr(tracer, name) for name in tracer.__all__} | {"Result": Result}
SLOW = ("bisect", "compare", "export", "narrow", "sweep", "tune")
NEEDS = {"export": "torch", "profile_framework": "torch"} | dict.fromkeys(
    ("interpret", "narrow", "quantize", "what_if"), "sklearn"
)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name in SLOW else [])
        for name, each in PUBLIC.items()
        if examples_of(each, name)
    ],
)
def test_the_examples_in_the_documentation_print_what_they_show(name, tmp_path, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    (tmp_path / "models").symlink_to(Path("models").resolve())
    monkeypatch.chdir(tmp_path)
    runner, failures = doctest.DocTestRunner(), io.StringIO()
    for example in examples_of(PUBLIC[name], name):
        runner.run(example, out=failures.write)
    assert runner.failures == 0, failures.getvalue()


def test_every_function_and_every_method_of_a_trace_has_an_example():
    functions = [name for name, each in PUBLIC.items() if inspect.isfunction(each)]
    assert [name for name in functions if not examples_of(PUBLIC[name], name)] == []
    shown = [each.name for name in ("Trace", "Result") for each in examples_of(PUBLIC[name], name)]
    methods = {name for name, _ in inspect.getmembers(tracer.Trace, inspect.isfunction)}
    assert {m for m in methods if not m.startswith("_")} - {"headline"} <= {
        name.partition(".")[2] for name in shown
    }


@pytest.mark.parametrize(
    ("function", "typed", "spelled"),
    [
        (tracer.profile, "Leave out --plan, or --prefill and --decode.",
         "Leave out plan, or prefill and decode."),
        (tracer.profile, "Set --dim n=SIZE --dim x:1=16, or --inputs FILE.npz; --batch 4 fits.",
         "Set dims={'n': SIZE, 'x:1': 16}, or inputs=FILE.npz; batch=4 fits."),
        (tracer.profile, "Run: tracer count m.onnx --batch 4. Or --batch 4, --max-macs 5",
         "Run: tracer count m.onnx --batch 4. Or batch=4, --max-macs 5"),
        (tracer.interpret, "as in --accumulator 16", "as in accumulator=16"),
        (tracer.compare, "Name a data set: --data text:FILE; --dim does nothing, nor --batch 8.",
         "Name a data set: test=text:FILE; settings.dims does nothing, nor settings.batch=8."),
        (tracer.quantize, "Use --format qdq or --per-tensor; --max-memory 5 is reached",
         "Use options.format qdq or options.per_channel=False; limits.process_bytes=5 is "
         "reached"),
        (tracer.tune, "raise --max-seconds to --max-seconds 60",
         "raise max_seconds to max_seconds=60"),
        (tracer.export, "Give it with the batch first: --input-shape 1,3,32,32.",
         "Give it with the batch first: input_shape=(1,3,32,32)."),
    ],
)  # fmt: skip
def test_an_error_names_the_arguments_of_a_function(function, typed, spelled, monkeypatch):
    def refuse(*args):
        raise UsageError(typed, typed)

    monkeypatch.setattr("tracer.containment.calls.contained", refuse)
    first = ["a.onnx", "b.onnx"] if function is tracer.compare else "a.onnx"
    more = ("b.onnx",) if function is tracer.export else ()
    with pytest.raises(UsageError) as caught:
        function(first, *more)
    assert (caught.value.what, caught.value.hint) == (spelled, spelled)


@pytest.mark.parametrize("in_process", [True, False])
def test_an_error_names_options_on_the_command_line_alone(tmp_path, in_process, capfd):
    onnx.save(residual(), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="Set prefill, the number of tokens"):
        tracer.count(tmp_path / "m.onnx", decode=4, in_process=in_process)
    assert cli.main(["count", str(tmp_path / "m.onnx"), "--decode", "4"]) == 2
    assert "Set --prefill, the number of tokens" in capfd.readouterr().err
