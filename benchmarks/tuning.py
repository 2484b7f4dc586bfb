"""`tracer tune` against exhaustive search over the same space, and the estimates of advice.

`--part search`: exhaustive search measures every combination of forms of the `--space`, in turns
with the unchanged model; `tracer tune` has a fifth of its time. Both bests are then compared with
each other.

`--part repeats`: measures again, `--repeats` times, whether each of the `--steps` helps that a
search kept.

`--part estimates`: each advice with an estimate is tuned as its sentence says, from the default and
from slow settings. Its estimate is an upper end, so it must not be below any gain that was
measured, whether it was kept or not.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tracer
from benchmarks._measure import machine
from tracer import host
from tracer.analyzers.advice import Advice, advise
from tracer.analyzers.compare.contrast import Contrast, of_sessions
from tracer.containment.activity import silent
from tracer.errors import TracerError
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.inputs.request import make_feeds
from tracer.tuning.candidates import Candidate, OnnxruntimeBench, Request, Workshop, wanted
from tracer.tuning.changes import Findings, Steps, ordered, parsed
from tracer.tuning.search import Found, Search
from tracer.tuning.setup import Machine, Setup

NETWORKS = {
    "resnet20": ("models/resnet_cifar/resnet20.onnx", {}),
    "lenet": ("models/lenet/lenet.onnx", {}),
    "transformer": ("models/transformer/transformer.onnx", {}),
    "decode": ("models/llama/llama.onnx", {"sequence": 1}),
}
"""Models, and the sizes of their open dimensions; one token is a step of a language model."""

STARTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "one thread": {"threads": 1},
    "not optimised": {"threads": 1, "optimization": "none"},
}
"""Settings from which advice is tuned: two are slow, so that there are gains to estimate."""

_SPACE = (
    "threads,spinning,optimization,layout,memory_pattern,arena,fixed_dimensions,folding,fusions"
)
"""Changes of which every combination is measured, as far as they apply."""
_SHARE = 0.19
"""Time of the search ÷ exhaustive search: a fifth, less the session in which it ends."""
_ENDLESS = 1e6
"""Seconds that no measurement reaches: the number of sessions ends it."""
_TOGETHER = 8
"""Combinations that take turns in one session."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The steps that a search chose, and the seconds that it took."""

    steps: Steps
    seconds: float


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--part", choices=("search", "repeats", "estimates"), default="search")
    parser.add_argument("--steps", default="", help="of --part repeats: threads=1,folding=shapes")
    parser.add_argument("--space", default=_SPACE)
    parser.add_argument("--sessions", type=int, default=8, help="of each combination")
    parser.add_argument("--share", type=float, default=_SHARE, help="time of the search")
    parser.add_argument("--repeats", type=int, default=40, help="of each kept step")
    parser.add_argument("--seconds", type=float, default=12.0, help="to tune each advice")
    args = parser.parse_args()
    print(machine())
    if args.part == "search":
        print("network      combinations  exhaustive s  tuned s  tuned ÷ best  steps")
        for name in args.networks:
            row(name, tuple(args.space.split(",")), args.sessions, args.share)
    elif args.part == "repeats":
        print("network      step                  without ÷ with it  contradicted")
        for name in args.networks:
            repeat(name, steps_of(args.steps), args.repeats)
    else:
        print("network      start          rule                 estimate  measured  ÷  tuned")
        for name, start in itertools.product(args.networks, STARTS):
            estimates(name, start, args.seconds)


def row(name: str, space: tuple[str, ...], sessions: int, share: float) -> None:
    """Measures one network and prints its row."""
    findings, bench = found(*NETWORKS[name]), OnnxruntimeBench(0, silent)
    workshop = Workshop(findings.setup, Request(only=space), bench)
    combinations = combined(usable(findings, space, workshop), workshop)
    best = exhaustive(workshop, combinations, bench, sessions)
    tuned = searched(findings, space, share * best.seconds, bench)
    pair = [workshop.setup(steps) for steps in (best.steps, tuned.steps)]
    ratio = 1.0 if best.steps == tuned.steps else contrast(bench, pair, 24).ratio
    print(
        f"{name:12} {len(combinations):12} {best.seconds:13.1f} {tuned.seconds:8.1f} "
        f"{ratio:13.3f}  {_text(tuned.steps)}; exhaustive: {_text(best.steps)}", flush=True,
    )  # fmt: skip


def steps_of(text: str) -> Steps:
    """Returns the steps that a row of a search names."""
    return parsed([part.strip() for part in text.split(",") if part])


def repeat(name: str, steps: Steps, repeats: int) -> None:
    """Measures what each step gains, and prints how many repeats exclude a gain."""
    findings, bench = found(*NETWORKS[name]), OnnxruntimeBench(0, silent)
    workshop = Workshop(findings.setup, Request(), bench)
    full = workshop.setup(steps)
    for step in steps:
        without = workshop.setup(tuple(each for each in steps if each is not step))
        contrasts = [contrast(bench, [full, without], 8) for _ in range(repeats)]
        middle = statistics.median(each.ratio for each in contrasts)
        wrong = sum(each.high < 1 for each in contrasts)
        print(f"{name:12} {step!s:21} {middle:18.3f} {wrong:13}", flush=True)


def estimates(name: str, start: str, seconds: float) -> None:
    """Prints a row for each advice on a network with an estimate: it, and what tuning gains."""
    findings = found(*NETWORKS[name], **STARTS[start])
    for advice in advised(findings):
        request = Request(seconds=seconds, allow=frozenset({"quantize"}), only=advice.tune)
        result = Search(findings, request, OnnxruntimeBench(0, silent), silent).run()
        gain = gained(result)
        assert advice.at_most is not None  # as `advised` has it
        print(
            f"{name:12} {start:14} {advice.rule:20} {advice.at_most:8.2f} {gain:9.2f} "
            f"{advice.at_most / gain:5.2f}  {_text(result.best.steps)}", flush=True,
        )  # fmt: skip


def gained(result: Found) -> float:
    """Returns the highest speed-up that tuning measured, kept or not: of a form, or of the best."""
    contrasts = [result.contrast, *(candidate.contrast for candidate in result.candidates)]
    return max([1.0, *(1 / each.ratio for each in contrasts if each.ratio > 0)])


def advised(findings: Findings) -> Iterator[Advice]:
    """Yields every advice on a profile that has an estimate."""
    trace = findings.trace
    every = advise(trace, trace.runs[0], trace.nodes, most=None)
    return (each for each in every if each.tune and each.at_most is not None)


def found(path: str, dims: dict[str, int], **settings: Any) -> Findings:
    """Returns the findings of a short profile of a shipped model."""
    model = loading.load(Path(path))
    known = {name: size for name, size in dims.items() if name in open_dims(model)}
    trace = tracer.profile(
        model, dims=known or None, min_time=0.5, confirm=False, peaks=host.peaks, in_process=True,
        **settings,
    )  # fmt: skip
    setup = Setup(model, make_feeds(model, dims=known or None), OrtSettings(**settings))
    return Findings(setup, trace, Machine.this())


def usable(findings: Findings, space: tuple[str, ...], workshop: Workshop) -> list[Candidate]:
    """Returns the candidates of a space that can be made, and are not like another one."""
    candidates = wanted(findings, Request(only=space))
    workshop.make_each(candidates, silent)
    return [each for each in candidates if not each.fault]


def open_dims(model: Model) -> set[str]:
    """Returns the symbolic dimensions of the inputs of a model."""
    shapes = (value.type.tensor_type.shape.dim for value in model.inputs)
    return {dim.dim_param for dims in shapes for dim in dims if dim.dim_param}


def combined(candidates: list[Candidate], workshop: Workshop) -> list[Steps]:
    """Returns every combination that can be made of at most one form of each change.

    The empty one is left out, and those whose model and settings are those of an earlier one.
    """
    forms: dict[str, list[Steps]] = {}
    for candidate in candidates:
        forms.setdefault(candidate.steps[0].change.name, [()]).append(candidate.steps)
    products = itertools.product(*forms.values())
    different: dict[tuple[str, str, int], Steps] = {workshop.setup(()).likeness: ()}
    for steps in (ordered(list(itertools.chain(*parts))) for parts in products):
        try:
            different.setdefault(workshop.setup(steps).likeness, steps)
        except TracerError:  # changes that exclude each other
            continue
    return [steps for steps in different.values() if steps]


def exhaustive(
    workshop: Workshop, combinations: list[Steps], bench: OnnxruntimeBench, sessions: int
) -> Outcome:
    """Returns the combination with the least time; none where the unchanged setup has it."""
    best: Steps = ()
    began, least = time.monotonic(), 1.0
    for start in range(0, len(combinations), _TOGETHER):
        some = combinations[start : start + _TOGETHER]
        setups = [workshop.setup(steps) for steps in ((), *some)]
        first, *others = bench.race(setups, _ENDLESS, lambda blocks: len(blocks[0]) >= sessions)
        for steps, own in zip(some, others, strict=True):
            if (ratio := of_sessions(first, own).ratio) < least:
                best, least = steps, ratio
    return Outcome(best, time.monotonic() - began)


def searched(
    findings: Findings, space: tuple[str, ...], seconds: float, bench: OnnxruntimeBench
) -> Outcome:
    """Returns what a search of about `seconds` chooses."""
    began = time.monotonic()
    result = Search(findings, Request(seconds=seconds, only=space), bench, silent).run()
    return Outcome(result.best.steps, time.monotonic() - began)


def contrast(bench: OnnxruntimeBench, setups: list[Setup], sessions: int) -> Contrast:
    """Returns the time of the second setup ÷ the time of the first."""
    first, second = bench.race(setups, _ENDLESS, lambda blocks: len(blocks[0]) >= sessions)
    return of_sessions(first, second)


def _text(steps: Steps) -> str:
    return ", ".join(map(str, steps)) or "none"


if __name__ == "__main__":
    main()
