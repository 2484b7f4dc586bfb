"""One run: an inference, or a training step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tracer.executors.torch.spans import RUN, mark, phase
from tracer.support.timing import elapsed_us

Loss = Callable[[Any], "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class Step:
    """A run of `model` on `inputs`; with `loss` a training step, which ends with `optimizer`.

    `recorded` is whether autograd records the forward pass. `parameters` keep gradients after a
    step.
    """

    model: Callable[..., Any]
    inputs: Sequence[torch.Tensor]
    parameters: Sequence[torch.nn.Parameter]
    device: str
    recorded: bool = False
    loss: Loss | None = None
    optimizer: torch.optim.Optimizer | None = None

    def timed(self) -> float:
        """Makes one run and returns its time, µs, on an accelerator until all work is done."""
        self.clear()
        self._synchronize()
        return elapsed_us(self._marked_run)

    def clear(self) -> None:
        """Drops the gradients of the previous step."""
        for parameter in self.parameters:
            parameter.grad = None

    def _marked_run(self) -> None:
        with mark(RUN):
            self._run()
            self._synchronize()

    def _run(self) -> None:
        with torch.set_grad_enabled(self.recorded):
            outputs = self.model(*self.inputs)
        if self.loss is None:
            return
        with phase("loss"):
            loss = self.loss(outputs)
        with phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        if self.optimizer is not None:
            with phase("optimizer"):
                self.optimizer.step()

    def _synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
