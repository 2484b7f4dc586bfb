"""The next step under a result: a command that runs as it stands, and keeps what the user gave."""

import importlib
import io
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import onnx
import pytest
from rich.console import Console

import tracer.cli
from tests.graphs import parse, residual
from tracer.analyzers.advice import Advice
from tracer.cli._command import Typed, keep_words, new_file
from tracer.cli._next_step import _RULES, show_box
from tracer.records.whatif import Judgement
from tracer.tuning.candidates import NO_TIME

LENET = Path(__file__).parents[3] / "models" / "lenet"
FAST = ("--runs", "2", "--threads", "1")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The name of a model that a shell needs quotes for."""
    folder = tmp_path / "it's mine"
    folder.mkdir()
    onnx.save(residual(), folder / "m.onnx")
    monkeypatch.chdir(tmp_path)
    return "it's mine/m.onnx"


def next_of(capfd, *args):
    """The words of the next step that a command prints. Every option of it is there."""
    assert tracer.cli.main([str(arg) for arg in args]) == 0
    out = capfd.readouterr().out
    (box,) = re.findall(r"Next:\s(.*?)\n[╰─]─", out, re.DOTALL)
    command = re.split(r"   |\n| *│", box.replace("\\\n  ", ""))[0]
    words = shlex.split(command)
    check(words)
    return words


def check(words):
    program, name, *rest = words
    assert program == "tracer"
    command = tracer.cli.tracer.get_command(None, name)
    names = ["-h", "--help"]  # as `main` has them: a command keeps those of its first context
    command.make_context(name, rest, resilient_parsing=True, help_option_names=names)


def runs(words):
    return tracer.cli.main(words[1:]) == 0


def test_a_count_leads_to_a_profile_that_runs_and_keeps_the_sizes(model, capfd):
    words = next_of(capfd, "count", model, "--batch", "3", "--by", "op", "--top", "1")
    assert words == ["tracer", "profile", model, "--batch", "3"]
    assert runs(words)


def test_a_name_that_begins_like_an_option_is_a_file(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual(), "-m.onnx")
    assert runs(next_of(capfd, "count", "--", "-m.onnx"))


def test_a_count_leads_to_a_run_only_where_a_run_tells_more(tmp_path, monkeypatch, capfd):
    """Sizes behind NonZero depend on values; no runtime has an operator of a user's own."""
    monkeypatch.chdir(tmp_path)
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[4] x) => (float[a, b] y) {
      n = NonZero(x)  c = Cast<to = 1>(n)  y = Sqrt(c) }"""
    onnx.save(parse(text), "open.onnx")
    words = next_of(capfd, "count", "open.onnx")
    assert words == ["tracer", "count", "open.onnx", "--run"]
    assert runs(words)
    capfd.readouterr()
    onnx.save(parse(text.replace("Cast<to = 1>", "my.Own")), "own.onnx")
    assert tracer.cli.main(["count", "own.onnx"]) == 0
    assert "Next:" not in capfd.readouterr().out


@pytest.mark.nightly
def test_a_profile_leads_to_a_tuning_of_the_same_session(model, capfd):
    words = next_of(capfd, "profile", model, *FAST, "--batch", "1,2", "-o", "r.trace")
    assert words[:5] == ["tracer", "tune", model, "--threads", "1"]
    assert "--batch" not in words  # one that tune cannot read
    changes = words[words.index("--try") + 1] if "--try" in words else ""
    assert ("--allow" in words) == ("static_int8" in changes)
    assert next_of(capfd, "report", "r.trace")[:5] == [
        "tracer",
        "report",
        "r.trace",
        "-o",
        "r.html",
    ]


def test_values_are_checked_before_times_are_taken(model, capfd):
    words = next_of(capfd, "interpret", model, "--seed", "3")
    assert words == ["tracer", "interpret", model, "--seed", "3", "--against", "ort"]
    assert next_of(capfd, *words[1:]) == ["tracer", "profile", model, "--seed", "3"]


def test_fused_kernels_are_measured_against_none(model, capfd):
    words = next_of(capfd, "fusions", model)
    assert words == ["tracer", "compare", f"{model}@ort:none", model]


@pytest.mark.nightly
def test_sides_that_are_alike_take_more_turns(model, capfd):
    shutil.copy(model, "again.onnx")
    words = next_of(capfd, "compare", model, "again.onnx", "--sessions", "2", "--precision", "50%")
    if words[1] == "compare":  # a busy machine may tell them apart
        assert words[2:4] == [model, "again.onnx"]
        assert int(words[words.index("--sessions") + 1]) > 2
    else:
        assert words[1] == "profile"


@pytest.mark.nightly
def test_sums_lead_to_widths_and_widths_to_a_narrow_model(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    shutil.copy(LENET / "lenet.int8.onnx", "q.onnx")
    given = ["--data", "digits", "--limit", "4", "--order", "tree", "--overflow", "wrap",
             "--magnitude", "--bias", "last"]  # fmt: skip
    words = next_of(capfd, "interpret", "q.onnx", "--accumulator", "16", *given)
    assert words[:3] == ["tracer", "whatif", "q.onnx"]
    assert "--magnitude" in words and words[words.index("--bias") + 1] == "last"
    assert words[words.index("--order") + 1] == "tree" and "wrap" in words
    assert words[words.index("--limit") + 1] == "4"
    low, high = map(int, words[words.index("--accumulator") + 1].split(":"))
    assert low < 16 < high
    words[words.index("--accumulator") + 1] = f"{high - 1}:{high}"
    words = next_of(capfd, *words[1:])
    assert words[:3] == ["tracer", "narrow", "q.onnx"]
    assert words[-1] == f"q.acc{words[words.index('--bits') + 1]}.onnx"
    assert words[words.index("--test-limit") + 1] == "4" and "--limit" not in words
    assert next_of(capfd, "interpret", "q.onnx", "--accumulator", "16", "--batch", "1")[1] == (
        "interpret"  # no data whose accuracy could be kept
    )


def test_accumulators_of_nodes_lead_to_a_sweep_of_each_of_them(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    shutil.copy(LENET / "lenet.onnx", "f.onnx")
    sums = "fc*=e5m7,*=fp16(order=lanes(4))"
    words = next_of(capfd, "interpret", "f.onnx", "--accumulator", sums,
                    "--data", "digits", "--limit", "2")  # fmt: skip
    assert words[words.index("--accumulator") + 1] == "fp32,bf16,e5m7,fp16(order=lanes(4))"
    assert runs(words)


def test_fixed_bits_of_sums_are_left_out_where_no_sums_are_narrow(model, capfd):
    words = next_of(capfd, "count", model, "--accumulator", "18", "--fixed", "8:5")
    assert words == ["tracer", "profile", model]


def test_integer_operators_are_not_narrowed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    given = ["--data", "digits", "--limit", "4"]
    options = ["--format", "qoperator", "-o", "q.onnx"]
    tracer.cli.main(["quantize", str(LENET / "lenet.onnx"), *given, *options])
    capfd.readouterr()
    assert tracer.cli.main(["whatif", "q.onnx", "--accumulator", "20:21", *given]) == 0
    assert "tracer narrow" not in capfd.readouterr().out
    assert tracer.cli.main(["narrow", "q.onnx", "--bits", "16", *given]) == 3
    assert "its products are integer operators, as node" in capfd.readouterr().err


def test_a_quantised_model_is_compared_with_its_origin(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    shutil.copy(LENET / "lenet.onnx", "f.onnx")
    words = next_of(capfd, "quantize", "f.onnx", "--calibrate", "digits", "--limit", "4",
                    "--test-limit", "8", "-o", "q.onnx")  # fmt: skip
    assert words == ["tracer", "compare", "f.onnx", "q.onnx"]


def steps(result, command, *params):
    """The words of every step that a rule knows after a result."""
    typed = Typed(command, {"model": ("model", ("net.onnx",)), **dict(params)})
    found = [shlex.split(line) for line, _ in _RULES[type(result).__name__](result, typed)]
    for words in found:
        check(words)
    return found


def test_what_advice_names_is_tried_in_one_command_and_quantising_in_another(monkeypatch):
    threads, shapes = ("threads", "optimization"), ("fixed_dimensions", "folding")
    advices = [
        Advice("memory_bound", "", 0.3, (), {}, tune=("static_int8",), at_most=20.0),
        Advice("small_kernels", "", 0.9, (), {}, tune=threads, at_most=10.0),
        Advice("computed_shapes", "", 0.28, (), {}, tune=shapes, at_most=10.0),
    ]
    monkeypatch.setattr("tracer.analyzers.advice.advise", lambda *_, **__: advices)
    trace = tracer.profile(residual(), runs=2, warmup=0, threads=1)
    typed = Typed("profile", {"model": ("model", ("net.onnx",))})
    (first, why), (second, _), _ = _RULES["Trace"](trace, typed)
    tried = "fixed_dimensions,folding,threads,optimization"
    assert first == f"tracer tune net.onnx --try {tried}"
    assert why.endswith("are faster (the whole model: at most 90% less time)")
    assert second == "tracer tune net.onnx --try static_int8 --allow quantize"
    del advices[2]  # else what may save most
    assert next(line for line, _ in _RULES["Trace"](trace, typed)) == second


class Tuned(SimpleNamespace):
    """What the rule of a tuning reads."""


@pytest.mark.parametrize(
    ("made", "proto", "params", "expected"),
    [
        ([], None, [], "tracer profile net.onnx -o"),
        ([("threads", "2")], None, [], "tracer tune net.onnx --apply threads=2 --save"),
        ([("static_int8", "int8")], b"",
         [("max_seconds", ("--max-seconds", ("9",))), ("allow", ("--allow", ("quantize",)))],
         "tracer tune net.onnx --apply static_int8=int8 -o net.tuned.onnx"),
        ([("fusions", "bert")], b"", [("outputs", ("-o", ("t.onnx",)))], "tracer profile t.onnx"),
        ([("threads", "2")], None, [("plan", ("--save", ("p.json",)))],
         "tracer profile net.onnx --plan p.json"),
    ],
)  # fmt: skip
def test_what_a_tuning_chose_is_kept_then_used(made, proto, params, expected):
    result = Tuned(plan=SimpleNamespace(steps=made), proto=proto, trials=())
    assert shlex.join(steps(result, "tune", *params)[0]).startswith(expected)


def test_nothing_follows_a_profile_in_which_no_kernel_ran(tmp_path):
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g () => (float[2] y) '
        "{ y = Constant <value = float[2] {1.0, 2.0}> () }"
    )
    assert not steps(tracer.profile(proto, runs=2, warmup=0), "profile")


ONLY, SECONDS = ("only", ("--try", ("arena",))), ("max_seconds", ("--max-seconds", ("8",)))


@pytest.mark.parametrize(
    ("verdict", "params", "expected"),
    [
        ("not faster", [], "tracer profile net.onnx -o net.html --open"),
        ("not faster", [ONLY], "tracer tune net.onnx"),
        ("needs --allow quantize", [], "tracer tune net.onnx --allow quantize"),
        (NO_TIME, [], "tracer tune net.onnx --max-seconds 480"),
        (NO_TIME, [SECONDS], "tracer tune net.onnx --max-seconds 32"),
    ],
)
def test_what_was_not_tried_is_tried_next(verdict, params, expected):
    """A model without products has nothing to quantise: no trial asks to be allowed."""
    trials = [SimpleNamespace(verdict="kept"), SimpleNamespace(verdict=verdict)]
    result = Tuned(plan=SimpleNamespace(steps=[]), proto=None, trials=trials)
    assert shlex.join(steps(result, "tune", *params)[0]) == expected


class WhatIf(SimpleNamespace):
    """What the rule of a what-if reads."""


@pytest.mark.parametrize(
    ("operator", "commands"),
    [("Conv", ["narrow"]), ("MatMulNBits", []), ("QLinearConv", []), ("ConvInteger", [])],
)
def test_only_a_layer_that_can_be_narrowed_leads_to_narrow(operator, commands):
    work = [SimpleNamespace(op_type=each) for each in ("Gemm", operator)]
    answer = SimpleNamespace(ended=None, uniform=None, observed=17)
    result = WhatIf(variants=[SimpleNamespace(answer=answer, work=work)], notes=())
    assert [words[1] for words in steps(result, "whatif")] == commands


class Narrowed(SimpleNamespace):
    """What the rule of a narrowed model reads."""


@pytest.mark.parametrize("higher_is_better", [True, False])
@pytest.mark.parametrize(("change", "bits"), [(-3, ["13"]), (-1, []), (3, [])])
def test_only_a_loss_leads_to_one_bit_more(higher_is_better, change, bits):
    judgement = Judgement("m", "", higher_is_better, budget=2)
    scores = SimpleNamespace(narrowed=50 + (change if higher_is_better else -change))
    result = Narrowed(bits=12, score=50, scores=scores, settings={}, judgement=judgement)
    widths = [
        words[words.index("--bits") + 1] for words in steps(result, "narrow") if "--bits" in words
    ]
    assert widths == bits


@pytest.mark.parametrize("words", [["--bits", "14"], ["--bits=14"], ["--accumulator", "14"]])
def test_an_option_of_several_names_keeps_the_one_that_was_typed(words):
    command = importlib.import_module("tracer.cli.narrow").command
    context = click.Context(command, info_name="narrow")
    keep_words(context, ["m.onnx", "--data", "digits", *words])
    with context:
        line = Typed.now().next("narrow", ["m.onnx"])
    assert f" {words[0].partition('=')[0]} 14 " in line


def test_a_word_replaces_the_same_option_by_another_name():
    typed = Typed("narrow", {"bits": ("--for", ("16",)), "data": ("--data", ("d.npz",))})
    line = typed.next("narrow", ["net.onnx"], "--bits", "17")
    assert line == "tracer narrow net.onnx --data d.npz --bits 17"


@pytest.mark.parametrize(
    ("command", "flag"),
    [("tune", "--save"), ("tune", "--force"), ("interpret", "--certificate"), ("profile", "-o"),
     ("profile", "--open")],
)  # fmt: skip
def test_files_of_a_command_are_no_part_of_the_next(command, flag):
    options = tracer.cli.tracer.get_command(None, command).params
    (name,) = [str(each.name) for each in options if flag in each.opts]
    full = next(each.opts[-1] for each in options if flag in each.opts)  # as `Typed` has it
    typed = Typed(command, {"seed": ("--seed", ("1",)), name: (full, ("file",))})
    assert typed.next(command, ["net.onnx"]) == f"tracer {command} net.onnx --seed 1"


@pytest.mark.parametrize("width", [40, 80, 100, 160])
@pytest.mark.parametrize("first", ["net.onnx", "/a/folder" * 9 + "/net.onnx"])
def test_the_box_fits_and_its_command_can_be_pasted(width, first):
    command = [
        "tracer",
        "compare",
        first,
        "a file.onnx",
        "b.onnx",
        "--sessions",
        "48",
        "--dim",
        "past=0",
    ]
    stream = io.StringIO()
    why = "narrows the interval of each layer of the network, and of whole runs"
    show_box(shlex.join(command), why, Console(file=stream, width=width))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    pasted = re.search(r"tracer (?:\\\n|.)*?(?=   \S|\n| *│)", text)[0]
    assert shlex.split(pasted.replace("\\\n", "")) == command


def test_two_graphs_that_differ_are_compared(capfd):
    sides = [str(LENET / "lenet.onnx"), str(LENET / "lenet.int8.onnx")]
    assert next_of(capfd, "diff", *sides) == ["tracer", "compare", *sides]


@pytest.mark.parametrize("output", ["x", "w"])
def test_a_graph_without_nodes_has_a_next_step(output, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] {output}) {{}}'
    onnx.save(parse(text, w=np.ones(2, np.float32)), "empty.onnx")
    assert next_of(capfd, "count", "empty.onnx")[1] == "profile"


def test_a_new_file_is_beside_the_one_that_was_named(tmp_path):
    (tmp_path / "net.onnx").touch()
    assert new_file(f"{tmp_path}/net.onnx", ".onnx", tmp_path) == str(tmp_path / "net-2.onnx")
    assert new_file(f"{tmp_path}/net.onnx", ".onnx") == "net.onnx"
