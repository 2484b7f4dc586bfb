"""The one command that a result suggests, in a box under its tables, and why.

A function for each kind of result yields steps, the most useful first. The first that is not what
the user has just typed is shown. Each is a command that runs as it stands.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tracer.cli._command import Typed, new_file
from tracer.cli._messages import is_quiet
from tracer.executors.settings import OPTIMIZATIONS
from tracer.text import plural

if TYPE_CHECKING:
    from rich.console import Console

    from tracer.analyzers.advice import Advice
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.bisection import Bisection
    from tracer.analyzers.fusions import Fusions
    from tracer.analyzers.graph_diff import GraphDiff
    from tracer.exporters.records import Exported
    from tracer.records.environment import Environment
    from tracer.records.trace import Trace
    from tracer.records.transformed import Narrowed, Quantized, Tuned
    from tracer.records.whatif import AccumulatorSweep, WhatIf

Steps: TypeAlias = "Iterator[tuple[str, str]]"
"""Command lines, and what each does."""

_CHANGES = {
    "fusions": "fused kernels", "optimization": "other optimisation levels",
    "fixed_dimensions": "fixed dimensions", "folding": "folded shapes", "layout": "other layouts",
    "static_int8": "8-bit integers", "weights_4bit": "4-bit weights",
    "threads": "other numbers of threads", "unlisted_weights": "unlisted weights",
}  # fmt: skip
"""Changes of `tracer tune` that advice names, in words."""
_OF_THEIR_NODES = {"fusions", "fixed_dimensions", "folding"}
"""Changes that take away the nodes that the advice is about: no estimate, the profile shows them.
"""
_KNOWN_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms")
"""How the domains begin whose operators onnxruntime has; the standard domain has no name."""
_LARGE_SHARE = 0.05
"""Share of the time of such nodes from which their changes are tried before all others."""
_LEAST_GAIN = 0.01
_MOST_LOST = 1.0
"""Points of accuracy that quantisation may lose before a layer is left out."""
_BELOW = 4
"""Bits below the fewest that any node needs, from which widths are tried."""


_Rule = TypeVar("_Rule", bound="Callable[..., Steps]")
_RULES: dict[str, Callable[..., Steps]] = {}
"""What yields the steps, by the name of the result's class: no class is imported for it."""


def show_next_step(result: object, console: Console) -> None:
    """Prints the next step after a result of a command line, unless that is to be quiet."""
    typed, rule = Typed.now(), _RULES.get(type(result).__name__)
    if is_quiet() or typed is None or rule is None:
        return
    if not typed.subjects and typed.command != "env":
        return
    steps = _after_report(typed) if typed.command == "report" else rule(result, typed)
    told = typed.next(typed.command, typed.subjects)
    step = next((step for step in steps if step[0] != told), None)
    if step is not None:
        show_box(*step, console)


def show_box(line: str, why: str, console: Console) -> None:
    """Prints a command and what it does: in one line, or in two where the console is narrow.

    A command that is longer than a line is continued behind a backslash, as a shell reads it.
    """
    from rich.panel import Panel
    from rich.text import Text

    from tracer.text import line as safe_line

    head, command, room = "Next: ", safe_line(line), console.width - 4
    between = "   " if len(head) + len(command) + len(why) + 3 <= room else "\n"
    is_long = len(head) + len(command) > room
    if is_long:
        head, command = "Next:\n", _continued(command, console.width)
    text = Text.assemble((head, "bold magenta"), (command, "bold"))
    if is_long:  # a box would put spaces behind a backslash
        rule = Text("─" * console.width, "magenta")
        console.print(rule, text, sep="\n", soft_wrap=True)
        console.print(Text(why), rule, sep="\n")
    else:
        console.print(Panel.fit(text.append(between + why), border_style="magenta"))


def _after(kind: str) -> Callable[[_Rule], _Rule]:
    """Declares a function that yields the steps after results of a class, by its name."""

    def keep(rule: _Rule) -> _Rule:
        _RULES[kind] = rule
        return rule

    return keep


def _continued(line: str, room: int) -> str:
    """Returns a command line on lines of at most `room` cells; a quoted word may be longer."""
    words = (shlex.quote(word).replace(" ", "\0") for word in shlex.split(line))
    room -= len(" \\") + 1
    filled = textwrap.wrap(
        " ".join(words), room, subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    parts = [
        # a shell joins the parts of a word too, unless it is quoted
        "\\\n".join(text[at : at + room] for at in range(0, len(text), room))
        if "'" not in text
        else text
        for text in filled
    ]
    return " \\\n".join(parts).replace("\0", " ")


@_after("Trace")
def _after_trace(trace: Trace, typed: Typed) -> Steps:
    model, nodes = typed.subjects, trace.nodes
    if not trace.runs:
        from tracer.api.count import COUNT_WITH_RUN

        if not all(not each or each.startswith(_KNOWN_DOMAINS) for each in nodes["domain"]):
            return  # operators of a user's own do not run
        if COUNT_WITH_RUN in trace.notes and not typed.has("run", "inputs"):
            yield typed.next("count", model, "--run"), "counts what depends on data, in one run"
        yield typed.next("profile", model), "measures where the time goes"
    elif "outputs" in nodes and nodes["outputs"].notna().any():
        yield from _after_sums(trace, typed)
    elif typed.command == "interpret":
        from tracer.analyzers.table import origins

        if not typed.has("against"):
            why = "checks every node against onnxruntime"
            yield typed.next("interpret", model, "--against", "ort"), why
        elif origins(trace.runs[0].values):
            words = ["-o", new_file(model[0], ".csv")]
            yield typed.next("interpret", model, *words), "writes the errors of every node"
        yield typed.next("profile", model), "times every node in onnxruntime"
    elif not trace.model.opsets:  # it ran in its framework
        if not typed.has("backward", "train"):
            sides = [*model, f"{model[0]}@ort"]
            yield typed.next("compare", sides), "measures whether onnxruntime is faster"
        yield typed.next("profile", model, "--by", "module"), "shows the time of each module"
    else:
        yield from _after_profile(trace, typed)


def _after_report(typed: Typed) -> Steps:
    traces = typed.subjects
    if not typed.text("outputs", ".html"):
        words = ["-o", new_file(traces[0], ".html"), "--open"]
        yield typed.next("report", traces, *words), "opens its page in a browser"
    yield typed.next("report", traces, "--by", "op"), "shows its operators"


def _after_profile(trace: Trace, typed: Typed) -> Steps:
    """Yields the tuning that advice names, then all of it.

    What keeps the numbers of the model is tried in one command, and what quantises it in another.
    The first is what takes away nodes that are named, then what may save most.
    """
    from tracer.analyzers.advice import QUANTISING, advise
    from tracer.analyzers.views.trace.headline import sections

    if not any(run.kernels for run in trace.runs):
        return  # nothing can be faster
    each = [a for s in sections(trace) for a in advise(trace, s.run, s.nodes, most=None) if a.tune]
    each = sorted((a for a in each if _gain(a) >= _LEAST_GAIN), key=_preference)
    quantising = [advice for advice in each if not QUANTISING.isdisjoint(advice.tune)]
    attempts = [[advice] for advice in quantising]
    attempts.append([advice for advice in each if advice not in quantising])
    for attempt in sorted(filter(None, attempts), key=lambda some: min(map(_preference, some))):
        changes = dict.fromkeys(name for advice in attempt for name in advice.tune)
        *first, last = (_CHANGES[name] for name in changes)
        named = f"{', '.join(first)} or {last}" if first else last
        most = max(map(_gain, attempt))
        of_most = f" (the whole model: at most {most:.0%} less time)" if most < 1 else ""
        words = replace(attempt[0], tune=tuple(changes)).tuning
        yield (
            typed.next("tune", typed.subjects, *words),
            f"measures whether {named} are faster{of_most}",
        )
    why = "tries what could make it faster here, and keeps what does"
    yield typed.next("tune", typed.subjects), why


def _preference(advice: Advice) -> tuple[bool, float]:
    is_seen = _OF_THEIR_NODES.issuperset(advice.tune) and advice.time_share >= _LARGE_SHARE
    return not is_seen, -_gain(advice)


def _gain(advice: Advice) -> float:
    """Returns the share of the time that changes may save at most; 1 if nothing bounds it."""
    return 1.0 if advice.at_most is None else 1 - 1 / max(advice.at_most, 1.0)


def _after_sums(trace: Trace, typed: Typed) -> Steps:
    """Yields the accumulators that keep the accuracy if the data are known, else those that hold.

    Accumulators of floats have no width.
    """
    from tracer.accumulators.spec import parts

    counted, model = trace.nodes[trace.nodes["outputs"].notna()], typed.subjects
    if typed.text("by") == "sample":
        yield typed.next(typed.command, model, without=("by",)), "shows which nodes overflow"
    tallies = [sums.tally for run in trace.runs for sums in run.sums]
    if any(tally.accumulator.is_unsigned for tally in tallies):
        return  # their widths are no widths of a sweep
    needed, bits = counted["bits_observed"].dropna(), counted["bits"].dropna()
    data = typed.text("data") or typed.text("inputs")
    is_float = needed.empty or bits.empty
    if data:
        rules = (parts(rule, "=")[-1] for rule in parts(typed.text("accumulator"), ","))
        tried = ",".join(dict.fromkeys(("fp32", "bf16", *rules)))  # a sweep has no rules by node
        if not is_float:
            low, high = min(needed.min(), bits.min()), max(needed.max(), bits.max())
            tried = f"{max(int(low) - _BELOW, 2)}:{int(high)}"
        what = "cheapest" if is_float else "narrowest"
        why = f"finds the {what} accumulators that keep the accuracy"
        yield typed.next("whatif", model, "--accumulator", tried, "--data", data), why
    elif not is_float:
        words = ["--accumulator", f"{int(needed.max())}"]
        why = f"checks that nothing overflows in {words[-1]} bits"
        yield typed.next(typed.command, model, *words), why


@_after("Comparison")
def _after_comparison(result: Comparison, typed: Typed) -> Steps:
    """Yields what explains other values, narrows an interval, or looks into the fastest side."""
    sides, labels = typed.subjects, [side.label for side in result.sides]
    totals = result.totals.to_dict("records")
    if len(sides) != len(labels):  # one model, with several numbers of threads
        threads = min(result.sides, key=lambda side: side.wall.mean).run.threads or 0
        why = f"shows where the time goes with {plural(threads, 'thread')}, the fastest number"
        yield typed.next("profile", sides, "--threads", str(threads)), why
        return
    for numbers in result.numbers:
        second = sides[labels.index(numbers.second)]
        if numbers.differ and second.endswith(".onnx"):
            why = f"shows which nodes of {second} differ from onnxruntime"
            yield typed.next("interpret", [second], "--against", "ort"), why
    turns = result.sides[0].turns_us
    if turns is not None and not any(row["significant"] for row in totals[1:]):
        low, high = (f"{totals[1][end] - 1:+.1%}" for end in ("ratio_low", "ratio_high"))
        words = ["--sessions", str(4 * len(turns))]
        yield typed.next("compare", sides, *words), f"narrows the interval, now {low} to {high}"
    fastest = sides[min(range(len(sides)), key=lambda index: float(totals[index]["time_us"]))]
    why = "shows where the time of the fastest side goes"
    name, _, runs_in = fastest.partition("@")
    runner, _, setting = runs_in.partition(":")
    if name.endswith(".trace"):
        yield typed.next("report", [name], "-o", new_file(name, ".html"), "--open"), why
    elif runner == "interpreter":
        yield typed.next("interpret", [name]), why
    else:
        flag = "--optimization" if setting in OPTIMIZATIONS else "--provider"
        yield typed.next("profile", [name], *((flag, setting) if setting else ())), why


@_after("GraphDiff")
def _after_diff(result: GraphDiff, typed: Typed) -> Steps:
    if result.changes:
        yield typed.next("compare", typed.subjects), "measures the times and values of both"


@_after("Bisection")
def _after_bisection(result: Bisection, typed: Typed) -> Steps:
    for found in result.faults:
        if found.fault != "crash" and result.kind != "revision":
            pair = (found.before, found.name)
            models = [next((each for each in typed.subjects if each.endswith(name)), name)
                      for name in pair]  # fmt: skip
            if result.kind == "release":
                models = [f"{typed.subjects[0]}@ort=={version}" for version in pair]
            yield typed.next("compare", models), "shows both by layer, in more turns"
    if result.unmeasured:
        yield typed.next("bisect", typed.subjects, "--all"), "measures those that were left out"
    yield typed.next("profile", typed.subjects[-1:]), "shows where the time goes"


@_after("Sweeps")
def _after_sweep(result: object, typed: Typed) -> Steps:
    why = "finds the settings and the batch size for the most samples per second"
    yield typed.next("tune", typed.subjects[:1], "--goal", "throughput"), why


@_after("Fusions")
def _after_fusions(result: Fusions, typed: Typed) -> Steps:
    from tracer.analyzers.fusions.confirmation import WRONG

    model = typed.subjects
    if any(kernel.verdict == WRONG for kernel in result.kernels):
        words = ["--fault", "wrong", "-o", new_file(model[0], ".py")]
        why = "makes a script of what is fused wrongly"
        yield typed.next("extract", model, *words, without=("outputs",)), why
    if model[0].endswith(".onnx") and any(len(kernel.nodes) > 1 for kernel in result.kernels):
        why = "measures what the fused kernels save"
        sides = [f"{model[0]}@ort:none", *model]
        yield typed.next("compare", sides, without=("optimization",)), why
    yield typed.next("profile", model), "measures the time of each kernel"


@_after("WhatIf")
def _after_whatif(result: WhatIf, typed: Typed) -> Steps:
    from tracer.graph.operators import computes_in_integers

    variant, model = result.variants[0], typed.subjects
    if _proves_little(result.notes):
        yield from _by_values(typed)
        return
    answer = variant.answer
    if answer.ended and typed.has("max_seconds"):
        seconds = f"{4 * float(typed.text('max_seconds')):g}"
        why = "gives the search the time that it lacked"
        yield typed.next("whatif", model, "--max-seconds", seconds), why
    bits = answer.observed if answer.uniform is None else min(variant.swept(answer.uniform))
    words = ["--bits", str(bits), "-o", new_file(model[0], f".acc{bits}.onnx")]
    why = f"makes a model whose sums fit {bits} bits for any input"
    operators = {work.op_type for work in variant.work}
    if "MatMulNBits" not in operators and not any(map(computes_in_integers, operators)):
        if typed.has("limit"):  # of samples of the test, where narrow's own is of those to fit on
            words = ["--test-limit", typed.text("limit"), *words]
        yield typed.next("narrow", model, *words, without=("limit",)), why


def _proves_little(notes: Sequence[str]) -> bool:
    from tracer.metrics.scores import PROVES_LITTLE

    return any(PROVES_LITTLE in note for note in notes)


def _by_values(typed: Typed) -> Steps:
    """Yields the same command with a metric that tells models apart; nothing follows from it."""
    why = "compares the values of the outputs, since the score proves little"
    yield typed.next(typed.command, typed.subjects, "--metric", "noise", without=("budget",)), why


@_after("AccumulatorSweep")
def _after_accumulators(result: AccumulatorSweep, typed: Typed) -> Steps:
    if _proves_little(result.notes):
        yield from _by_values(typed)
        return
    for chosen in (result.cheapest, *result.sufficient[::-1], *result.rows[-1:]):
        if chosen is not None:
            why = f"shows what {chosen.accumulator} does to the sums of each node"
            words = ["--accumulator", chosen.accumulator]
            yield typed.next("interpret", typed.subjects, *words), why


@_after("Narrowed")
def _after_narrow(result: Narrowed, typed: Typed) -> Steps:
    model, file, bits = typed.subjects, typed.text("outputs", ".onnx"), result.bits
    is_enough = result.judgement.allows(result.scores.narrowed, result.score)
    has_width = not (result.settings.get("machine") or result.settings.get("exact"))
    if not is_enough and has_width:
        words = ["--bits", f"{bits + 1}", "-o", new_file(model[0], f".acc{bits + 1}.onnx")]
        yield typed.next("narrow", model, *words), "loses less accuracy, with one bit more"
    if file:
        why = "measures the time and the values of both"
        yield typed.next("compare", [*model, file]), why
    words = ["-o", new_file(model[0], f".acc{bits}.onnx")]
    yield typed.next("narrow", model, *words), "keeps the narrowed model in a file"


@_after("Quantized")
def _after_quantize(result: Quantized, typed: Typed) -> Steps:
    accuracy, file, model = result.accuracy, typed.text("outputs", ".onnx"), typed.subjects
    if accuracy is not None and accuracy.unit == "%" and not typed.has("exclude") and result.layers:
        lost = accuracy.before - accuracy.after
        if lost > _MOST_LOST:
            noisiest = max(result.layers, key=lambda layer: layer.added_noise)
            another = new_file(file, ".onnx", Path(file).parent)
            words = ["--exclude", noisiest.node, "-o", another]
            why = f"leaves the noisiest layer in floats ({lost:.1f} points are lost now)"
            yield typed.next("quantize", model, *words), why
    yield typed.next("compare", [*model, file]), "measures whether the quantised model is faster"


@_after("Tuned")
def _after_tune(result: Tuned, typed: Typed) -> Steps:
    from tracer.tuning.candidates import NO_TIME, Request

    steps, model = [f"{change}={value}" for change, value in result.plan.steps], typed.subjects
    file, plan = typed.text("outputs", ".onnx"), typed.text("plan")
    if steps and (plan or (file and result.proto is not None)):
        why, words = "shows where the time goes now", (["--plan", plan] if plan else [])
        folded = any(change == "folding" for change, _ in result.plan.steps) and not plan
        without = ("dims", "batch") if folded else ()  # its inputs have these sizes
        yield typed.next("profile", model if plan else [file], *words, without=without), why
    elif steps:
        words = ["--apply", ",".join(steps)]
        kept = ["-o", new_file(model[0], ".tuned.onnx")]
        if result.proto is None:
            kept = ["--save", new_file(model[0], ".plan.json")]
        line = typed.next("tune", model, *words, *kept, without=("only", "allow", "max_seconds"))
        yield line, "keeps the fastest combination, without measuring again"
    else:
        verdicts = [trial.verdict for trial in result.trials]
        if any(verdict.startswith(NO_TIME) for verdict in verdicts):
            seconds = f"{4 * float(typed.text('max_seconds') or Request().seconds):g}"
            why = "gives the search the time that it lacked"
            yield typed.next("tune", model, "--max-seconds", seconds), why
        if any(verdict.endswith("--allow quantize") for verdict in verdicts):
            why = "also tries arithmetic of 8 and 4 bits, which changes results"
            yield typed.next("tune", model, "--allow", "quantize"), why
        if typed.has("only"):
            why = "tries every other change that may help"
            yield typed.next("tune", model, without=("only",)), why
    words = ["-o", new_file(model[0], ".html"), "--open"]
    yield typed.next("profile", model, *words), "opens the page of a profile in a browser"


@_after("Exported")
def _after_export(result: Exported, typed: Typed) -> Steps:
    if typed.text("to") == "qonnx":
        yield shlex.join(["tracer", "count", str(result.path)]), "counts its work, bits included"
    yield shlex.join(["tracer", "profile", str(result.path)]), "measures where the time goes"


@_after("Environment")
def _after_env(result: Environment, typed: Typed) -> Steps:
    if result.peaks is None:
        yield "tracer env --peaks", "measures the peak rates of this machine (3 s)"
    yield "tracer demo", "profiles a ResNet-20, and writes every kind of result"
