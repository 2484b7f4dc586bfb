"""Random nodes in narrow accumulators against a definition that shares no code with them.

    python -m tests.accumulators.oracle [--nodes 20000] [--seed 1] [--first 0]

A node is a product of matrices or a convolution of quantised, fixed-point or block-scaled numbers,
or of numbers in blocks that share exponents; `random_nodes` makes it, `random_rules` its
accumulator, `definition` its sums. Its output is compared alone, with counts of overflows, and with
statistics of other widths too. `random_floats` makes nodes of floats, whose outputs are compared.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tests.accumulators import definition, random_floats, random_nodes
from tests.accumulators.random_floats import FloatNode
from tests.accumulators.random_nodes import Node, Part
from tests.accumulators.random_rules import Kind
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.engine.sum_runner import Counts, LimitedSums, OverflowCounter, SumRunner
from tracer.accumulators.spec import WIDEST
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.numeric import parallel


@dataclass(frozen=True)
class Case:
    """A random node, and its number."""

    node: Node
    widths: tuple[int, ...]

    @property
    def form(self) -> str:
        """The operator, and how its operands are stored."""
        return f"{self.node.model.graph.node[-1].op_type} {self.node.stored}"

    @property
    def order(self) -> str:
        """The order of additions."""
        return str(self.node.words["order"])

    @property
    def spelled(self) -> str:
        """The accumulator as a user spells it."""
        words = {name: value for name, value in self.node.words.items() if value is not None}
        bits = "/".join(map(str, self.widths)) or words["bits"]
        others = [f"{name}={value}" for name, value in words.items() if name != "bits"]
        return f"{bits}({','.join(others)})"

    def check(self) -> bool:
        """Compares all ways to compute the node; returns whether a sum left the range."""
        words = {name: value for name, value in self.node.words.items() if name != "zero_points"}
        placed, first = [], 0
        for part in self.node.parts:
            own = self.widths[first : first + len(part.left)] if self.widths else ()
            first += len(part.left) * (part.steps is None)
            bits = np.array(own, np.int64)[:, None] if own else words["bits"]
            register = definition.Register(**{**words, "bits": bits})
            placed.append(self._sums(part, register))
        expected = self.node.output([values for values, _ in placed])
        counts = sum((Counts(*each.counts) for _, each in placed), Counts())
        for kind in (LimitedSums, OverflowCounter, SumRunner):
            found = self._run(kind, counts)
            if found is None:
                continue
            out, runner = found
            mine = np.moveaxis(out, 1, 0).reshape(out.shape[1], -1)
            np.testing.assert_array_equal(mine, expected, kind.__name__)
            if isinstance(runner, OverflowCounter):
                assert runner.counts == counts, (runner.counts, counts)
            elif kind is SumRunner:
                self._check_tally(runner, counts, [each for _, each in placed])
        return counts.overflow_outputs > 0

    def _run(self, kind: type[SumRunner], counts: Counts) -> tuple[np.ndarray, SumRunner] | None:
        """The output, and what counted; None where an overflow ended the run, as it must."""
        model = loading.from_proto(self.node.model)
        policy = parse_policy(self.spelled, self.node.fixed or None)
        emulation = AccumulatorEmulation(model, policy)
        interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
        runners = emulation.new_runners({}, kind)
        (runner,) = runners.values()
        is_error = kind is SumRunner and self.node.words["overflow"] == "error"
        with emulation.using(runners):
            try:
                (out,) = interpreter.run(None, {"x": self.node.x})
            except ModelError as error:
                if not (is_error and "leaves [" in error.what):
                    raise
                assert counts.saturation_events
                return None
        assert not (is_error and counts.saturation_events)
        return out, runner

    def _sums(self, part: Part, register: definition.Register) -> tuple[np.ndarray, Seen]:
        left, right = part.left, part.right
        exact = left @ right
        if self.node.words.get("zero_points") == "after":
            left, right = left + part.zeros[0], right + part.zeros[1]
        sums = definition.sums(left, right, part.bias, self.node.shape, register)
        stored = left @ right
        changed = np.count_nonzero(sums.values != stored + part.bias[:, None])
        return sums.values + exact - stored, Seen(sums, register, changed)

    def _check_tally(self, runner: SumRunner, counts: Counts, seen: list[Seen]) -> None:
        tally = runner.tally
        assert tally is not None
        overflow, totals = tally.overflow(), tally.totals()
        names = ("overflow_outputs", "transient_outputs", "persistent_outputs")
        numbers = [int(getattr(overflow, name).sum()) for name in names]
        rest = [totals["saturation_events"], totals["outputs_changed"]]
        assert Counts(*numbers, *rest) == counts, (numbers, rest, counts)
        ends = {"acc_min": min(int(each.sums.low.min()) for each in seen),
                "acc_max": max(int(each.sums.high.max()) for each in seen),
                "final_min": min(int(each.sums.final.min()) for each in seen),
                "final_max": max(int(each.sums.final.max()) for each in seen)}  # fmt: skip
        assert {name: totals[name] for name in ends} == ends, (totals, ends)
        if self.widths:
            return
        own = self.node.words["bits"]
        widest = WIDEST - (self.node.words["convention"] != "twos-complement")
        for bits in {2, max(own - 3, 2), min(own + 1, 62), widest}:
            wanted = sum(each.outside(bits) for each in seen)
            assert int(tally.overflow(bits).overflow_outputs.sum()) == wanted, bits


@dataclass(frozen=True)
class Seen:
    """The sums of a part, and how many of them were changed."""

    sums: definition.Result
    register: definition.Register
    changed: int

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Outputs that overflow, on the way alone and at the end; events; changed outputs."""
        low, high = self._range(self.register.bits)
        events, final = self.sums.events, self.sums.final
        outside = int(np.count_nonzero(events))
        lasting = int(np.count_nonzero((final < low) | (final > high)))
        return outside, outside - lasting, lasting, int(events.sum()), self.changed

    def outside(self, bits: int) -> int:
        """Outputs that would overflow at another width."""
        low, high = self._range(bits)
        leaves = (self.sums.low < low) | (self.sums.high > high) | (self.sums.own_events > 0)
        return int(np.count_nonzero(leaves))

    def _range(self, bits: int) -> tuple[int, int]:
        range_: tuple[int, int] = definition.ends(
            bits, self.register.overflow, self.register.convention
        )
        return range_


def drawn(seed: int, number: int) -> Case | FloatNode:
    """A random node; one of five adds floats."""
    random = np.random.default_rng((seed, number, 1))
    if number % 5 == 4:
        return random_floats.drawn(random)
    node, widths = random_nodes.drawn(Kind.drawn(seed, number), random), tuple[int, ...]()
    if random.random() < 0.1:
        rows = sum(len(part.left) for part in node.parts if part.steps is None)
        around = random.integers(-3, 4, rows or len(node.parts[0].left))
        widths = tuple(np.clip(node.words["bits"] + around, 2, 62).tolist())
    return Case(node, widths)


def main() -> None:
    """Prints what was covered; a mismatch ends the run with the seed of its node."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first node")
    arguments = parser.parse_args()
    covered, begin = Counter[str](), time.perf_counter()
    with parallel.threads(2):
        for number in range(arguments.first, arguments.first + arguments.nodes):
            case = drawn(arguments.seed, number)
            try:
                covered["overflowing"] += case.check()
            except Exception:
                print(f"node {number} of seed {arguments.seed}: {case.spelled}")
                raise
            covered.update({*re.findall(r"[a-z]{4,}|>>", case.order), case.form})
            if (number + 1) % 1000 == 0:
                seconds = time.perf_counter() - begin
                print(f"{number + 1:,} nodes, {seconds:.0f} s: {dict(covered)}", flush=True)
    print(f"{arguments.nodes:,} nodes agree with the definition; "
          f"{covered['overflowing']:,} overflow")  # fmt: skip


if __name__ == "__main__":
    main()
