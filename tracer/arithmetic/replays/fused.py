"""Kernels that end with a function of one element, which onnxruntime fuses with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import helper

from tracer.arithmetic.kernel import Inputs, Kernel
from tracer.arithmetic.replays import replay_of
from tracer.arithmetic.rule import Facts, Replay, Rule, reveal
from tracer.support.types import Array


@dataclass(frozen=True)
class WithActivation:
    """A replay of sums, and of the function at their end, whose facts are `activation`.

    Without the function, a kernel is of the type `plain` of ONNX, or of its own.
    """

    sums: Replay
    plain: str = ""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields the rules of the sums, with that of the function."""
        if not kernel.attributes.get("activation"):
            yield from self.sums.candidates(kernel)
            return
        bare = self._bare(kernel)
        function = _function(kernel, bare.run(bare.draw(np.random.default_rng(0)))[0])
        last = reveal(replay_of("", function.op_type), function)
        for rule in self.sums.candidates(bare):
            facts = {**rule.facts, "activation": last.facts}
            yield Rule(f"{rule.text}, then {function.op_type}: {last.text}", facts)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the sums, or the function of them."""
        if not kernel.attributes.get("activation"):
            return self.sums.replay(kernel, facts, inputs)
        (sums,) = self.sums.replay(self._bare(kernel), facts, inputs)
        function = _function(kernel, sums)
        replay = replay_of("", function.op_type)
        return replay.replay(function, facts["activation"], {"x": sums})

    def _bare(self, kernel: Kernel) -> Kernel:
        names = (name for name in kernel.attributes if name.startswith("activation"))
        bare = kernel.without_attributes(*names)
        if self.plain:
            bare.node.op_type, bare.node.domain = self.plain, ""
        return bare


def _function(kernel: Kernel, sums: Array) -> Kernel:
    """Returns the kernel of the function of `sums`, its input "x"."""
    values = kernel.attributes
    numbers = values.get("activation_params", [])
    limits = zip(("low", "high"), numbers if values["activation"] == "Clip" else [], strict=False)
    stored = {name: np.array(number, np.float32) for name, number in limits}
    given = dict(zip(("alpha", "beta"), [] if stored else numbers, strict=False))
    for name in ("alpha", "beta", "gamma"):
        if f"activation_{name}" in values:
            given[name] = values[f"activation_{name}"]
    node = helper.make_node(values["activation"], ["x", *stored], ["y"], **given)
    inputs = {"x": (sums.dtype, sums.shape)}
    return Kernel(node, inputs, stored, {"": 17}, kernel.threads)
