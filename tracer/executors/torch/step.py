"""One run: an inference, or a training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tracer.executors.torch.spans import RUN, mark, phase
from tracer.support.timing import elapsed_us

Loss = Callable[[Any], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class Step:
    """`model` on `inputs`; with `loss` a training step, which `optimizer` ends if there is one.

    `parameters` are those whose gradients a step leaves behind.
    """

    model: Callable[..., Any]
    inputs: Sequence[torch.Tensor]
    parameters: Sequence[torch.nn.Parameter]
    device: str
    loss: Loss | None = None
    optimizer: torch.optim.Optimizer | None = None

    def timed(self) -> float:
        """Make one run and give its time, µs; on an accelerator until all its work is done."""
        self.clear()
        self._settle()
        return elapsed_us(self._marked_run)

    def clear(self) -> None:
        """Drop the gradients that the step before left."""
        for parameter in self.parameters:
            parameter.grad = None

    def _marked_run(self) -> None:
        with mark(RUN):
            self._run()
            self._settle()

    def _run(self) -> None:
        if self.loss is None:
            with torch.no_grad():
                self.model(*self.inputs)
            return
        outputs = self.model(*self.inputs)
        with phase("loss"):
            loss = self.loss(outputs)
        with phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        if self.optimizer is not None:
            with phase("optimizer"):
                self.optimizer.step()

    def _settle(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
