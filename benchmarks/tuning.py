"""`tracer tune` against exhaustive search over the same space: quality, time, repeated decisions.

The space is every combination of forms of `--space` changes of settings. Exhaustive search measures
all of them in turns with the unchanged model, as many sessions each as a comparison has. Both bests
are then compared with each other. Repeats measure again whether each kept step helps.
"""

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import tracer
from analyzers.compare.contrast import Contrast, of_sessions
from benchmarks._measure import machine
from tracer import host
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import loading
from tracer.graph.model import Model
from tracer.inputs.model_feeds import make_feeds
from tracer.support.progress import silent
from tracer.tuning.bench import OnnxruntimeBench
from tracer.tuning.candidates import Candidate, Request, wanted
from tracer.tuning.changes import Steps, ordered
from tracer.tuning.findings import Findings
from tracer.tuning.machine import Machine
from tracer.tuning.search import Search
from tracer.tuning.setup import Setup

NETWORKS = {
    "resnet20": ("models/resnet_cifar/resnet20.onnx", {}),
    "lenet": ("models/lenet/lenet.onnx", {}),
    "transformer": ("models/transformer/transformer.onnx", {}),
    "decode": ("models/llama/llama.onnx", {"sequence": 1}),
}
"""Models, and the sizes of their open dimensions; one token is a step of a language model."""

_SHARE = 0.2
"""Time of the search ÷ exhaustive search."""
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
    parser.add_argument("--space", default="threads,spinning,optimization,layout,memory_pattern")
    parser.add_argument("--sessions", type=int, default=24, help="of each combination")
    parser.add_argument("--share", type=float, default=_SHARE, help="time of the search")
    parser.add_argument("--repeats", type=int, default=40, help="of each kept step")
    args = parser.parse_args()
    print(machine())
    print("network      combinations  exhaustive s  tuned s  tuned ÷ best  contradicted  steps")
    for name in args.networks:
        row(name, tuple(args.space.split(",")), args.sessions, args.share, args.repeats)


def row(name: str, space: tuple[str, ...], sessions: int, share: float, repeats: int) -> None:
    """Measures one network and prints its row."""
    findings, bench = found(*NETWORKS[name]), OnnxruntimeBench(0, silent)
    combinations = combined(wanted(findings, Request(only=space)))
    best = exhaustive(findings.setup, combinations, bench, sessions)
    tuned = searched(findings, space, share * best.seconds, bench)
    pair = [made(findings.setup, steps) for steps in (best.steps, tuned.steps)]
    ratio = 1.0 if best.steps == tuned.steps else contrast(bench, pair, sessions).ratio
    wrong = contradicted(findings.setup, tuned.steps, bench, repeats)
    steps = ", ".join(map(str, tuned.steps)) or "none"
    print(
        f"{name:12} {len(combinations):12} {best.seconds:13.1f} {tuned.seconds:8.1f} "
        f"{ratio:13.3f} {wrong:13} {steps}"
    )


def found(path: str, dims: dict[str, int]) -> Findings:
    """Returns the findings of a short profile of a shipped model."""
    model = loading.load(Path(path))
    known = {name: size for name, size in dims.items() if name in open_dims(model)}
    trace = tracer.profile(
        model, dims=known or None, min_time=0.5, confirm=False, peaks=host.peaks, in_process=True
    )
    setup = Setup(model, make_feeds(model, dims=known or None), OrtSettings())
    return Findings(setup, trace, Machine.this())


def open_dims(model: Model) -> set[str]:
    """Returns the symbolic dimensions of the inputs of a model."""
    shapes = (value.type.tensor_type.shape.dim for value in model.inputs)
    return {dim.dim_param for dims in shapes for dim in dims if dim.dim_param}


def combined(candidates: list[Candidate]) -> list[Steps]:
    """Returns every combination of at most one form of each change, without the empty one."""
    forms: dict[str, list[Steps]] = {}
    for candidate in candidates:
        forms.setdefault(candidate.steps[0].change.name, [()]).append(candidate.steps)
    products = itertools.product(*forms.values())
    return [steps for parts in products if (steps := ordered(list(itertools.chain(*parts))))]


def made(base: Setup, steps: Steps) -> Setup:
    """Returns the setup with these steps."""
    for step in steps:
        base = step.change.apply(base, step.value)
    return base


def exhaustive(
    base: Setup, combinations: list[Steps], bench: OnnxruntimeBench, sessions: int
) -> Outcome:
    """Returns the combination with the least time; none where the unchanged setup has it."""
    began, best, least = time.monotonic(), (), 1.0
    for start in range(0, len(combinations), _TOGETHER):
        some = combinations[start : start + _TOGETHER]
        setups = [base, *(made(base, steps) for steps in some)]
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


def contradicted(base: Setup, steps: Steps, bench: OnnxruntimeBench, repeats: int) -> int:
    """Returns how many repeats show that a kept step makes the combination slower."""
    full, wrong = made(base, steps), 0
    for step in steps:
        without = made(base, tuple(each for each in steps if each is not step))
        wrong += sum(contrast(bench, [full, without], 8).high < 1 for _ in range(repeats))
    return wrong


if __name__ == "__main__":
    main()
