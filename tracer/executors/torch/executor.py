"""Runs a PyTorch module and times every operator of every module, forward and backward.

torch's profiler records operators, in sessions whose records fit in memory. Hooks mark the module
of each operator; autograd's sequence numbers join backward operators to forward operators.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import add
from typing import Any, TypeAlias

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd.profiler import profile

from tracer.errors import UsageError
from tracer.executors.calls import RANGE, Calls, DeviceUse, described
from tracer.executors.eager import Arrays, EagerExecutor, Overhead, failing_clearly
from tracer.executors.registry import CountingExecutor, Works
from tracer.executors.settings import EagerSettings
from tracer.executors.torch.events import MODULE, PHASE, RUN, Marking, runs, tensors_in, work_by_row
from tracer.support.measurements import RunTimer, elapsed_us, times_us

_CHAIN_LENGTH = 200
_CHAIN_RUNS = 10
_CHAIN_TURNS = 5
Loss: TypeAlias = Callable[[Any], torch.Tensor]
mark: Callable[[str], Any] = _RecordFunctionFast
"""Returns a context that the profiler records by a name; cheap without a profiler."""
_LEARNING_RATE = 1e-3
_SESSION_SPANS = 100_000
"""Most spans of one session of the profiler: some 100 MB."""


def loss_for(outputs: Any, settings: EagerSettings) -> Loss | None:
    """Returns the loss for a model with these `outputs`; None without a backward pass.

    `sum` adds all outputs that have a gradient. `cross-entropy` compares the first output,
    [N, classes, …], with random targets. Raises UsageError for outputs that do not suit.
    """
    if not settings.backward:
        return None
    if not any(leaf.requires_grad for leaf in tensors_in(outputs)):
        raise UsageError(
            "no output of the model has a gradient",
            "Leave --backward out, or let a parameter require its gradient.",
        )
    if settings.loss != "cross-entropy":
        return lambda results: reduce(
            add, (t.sum() for t in tensors_in(results) if t.requires_grad)
        )
    first = tensors_in(outputs)[0]
    if first.dim() < 2 or not first.requires_grad:
        raise UsageError(
            f"cross-entropy needs an output [N, classes, …], and the first is {described(first)}",
            "Give --loss sum.",
        )
    random = torch.Generator().manual_seed(settings.seed)
    shape = (first.shape[0], *first.shape[2:])
    targets = torch.randint(first.shape[1], shape, generator=random).to(first.device)
    return lambda results: torch.nn.functional.cross_entropy(tensors_in(results)[0], targets)


def optimizer_for(model: torch.nn.Module, settings: EagerSettings) -> torch.optim.Optimizer | None:
    """Returns the optimizer of the parameters that require a gradient; None if not set."""
    if settings.optimizer is None:
        return None
    kind: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[settings.optimizer]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = kind(parameters, lr=_LEARNING_RATE)
    return optimizer


@contextmanager
def preserved(model: torch.nn.Module, settings: EagerSettings) -> Iterator[None]:
    """Puts `model` on the device, seeded, in evaluation mode or, with `settings`, training mode.

    At the end it restores the modes, gradients, buffers and parameters of `model`, the number of
    threads and torch's random generators.
    """
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    tensors = [*model.buffers(), *(model.parameters() if settings.optimizer else ())]
    values = [(tensor, tensor.detach().clone()) for tensor in tensors if settings.training]
    threads = torch.get_num_threads()
    home = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), None)
    cards = [torch.cuda.current_device()] if settings.device == "cuda" else []
    try:
        with torch.random.fork_rng(cards):
            torch.manual_seed(settings.seed)
            if settings.threads:
                torch.set_num_threads(settings.threads)
            for module, _ in modes:
                module.training = settings.training
            for parameter, _ in gradients:
                parameter.grad = None
            if home is not None and settings.device != home.type:
                model.to(settings.device)
            yield
    finally:
        for parameter, _ in gradients:
            parameter.grad = None
        if home is not None:
            model.to(home)
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes:
            module.training = training
        torch.set_num_threads(threads)


@contextmanager
def _opened(
    model: torch.nn.Module,
    run: Callable[..., Any],
    arrays: Arrays,
    settings: EagerSettings,
    modules: Callable[[], AbstractContextManager[None]],
) -> "Iterator[_Recording]":
    """Opens `model` for runs by `run`."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "torch sees no CUDA device",
            "Leave --device out; where there is a card, its driver and a CUDA build of torch "
            "are needed.",
        )
    with preserved(model, settings):
        step = _step(model, run, arrays, settings)
        yield _Recording(step, modules, Calls("torch", on_device=settings.device != "cpu"))


def _step(
    model: torch.nn.Module, run: Callable[..., Any], arrays: Arrays, settings: EagerSettings
) -> "Step":
    """Returns a step of `model` by `run`, after a first run that may fail; frees its outputs."""
    inputs = [torch.tensor(array, device=settings.device) for array in arrays]
    with failing_clearly(model, inputs), torch.set_grad_enabled(settings.training):
        outputs = settings.call(run, inputs)
    loss = loss_for(outputs, settings)
    if loss is not None:
        with failing_clearly(model, inputs):
            loss(outputs).backward()  # type: ignore[no-untyped-call]
    return Step(
        run, inputs, tuple(model.parameters()), settings, loss, optimizer_for(model, settings)
    )


@dataclass
class _Recording:
    """The calls that torch's profiler has recorded so far."""

    step: "Step"
    modules: Callable[[], AbstractContextManager[None]]
    calls: Calls
    spans_per_run: int = 0
    use: DeviceUse = field(default_factory=DeviceUse)
    memory: tuple[str, ...] = ()

    def timed(self) -> float:
        return self.step.timed()

    def observe(self) -> None:
        """Records types and memory in a run of its own, and counts the spans of a run."""
        self.step.clear()  # torch warns when memory is freed that was not allocated in the session
        if self.calls.on_device:  # how much of its memory a run needs, as its allocator tells
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.step.timed()
            peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            self.memory = (
                f"memory of the card: {peak / 1e6:,.1f} MB at most in a run, of which "
                f"{before / 1e6:,.1f} MB are there before it; torch's allocator reserves "
                f"{reserved / 1e6:,.1f} MB",
                f"the card is {torch.cuda.get_device_name()}, with CUDA {torch.version.cuda}",
            )
        with self.modules(), recorded_events(self.step.settings.device, memory=True) as profile:
            self.step.timed()
        run = runs(profile, self.step.settings.device)[0]
        self.spans_per_run = len(run)
        self.calls.observe(run)
        for row in self.calls.operations.values():
            if row.op_type != RANGE:  # memory belongs to the operators inside
                row.peak_bytes = row.peak_bytes or 0

    def most_runs(self) -> int:
        return _SESSION_SPANS // max(1, self.spans_per_run)

    def runs(self, count: int) -> RunTimer:
        """Records `count` runs, after one that is not counted; returns their times."""
        timer = RunTimer()
        with self.modules(), recorded_events(self.step.settings.device) as profile:
            self.step.timed()
            for _ in range(count):
                timer.take(self.step.timed)
        for run in runs(profile, self.step.settings.device)[1:]:
            self.calls.add(run)
            self.use.add(run)
        return timer

    def notes(self, wall_us: float) -> tuple[str, ...]:
        """Returns how busy the accelerator was and what its memory held, if there is one."""
        return (*self.use.notes(wall_us), *self.memory) if self.calls.on_device else ()


@dataclass(frozen=True, slots=True)
class Step:
    """A run of `model` on `inputs`; with `loss` a training step, which ends with `optimizer`.

    `parameters` keep gradients after a step.
    """

    model: Callable[..., Any]
    inputs: Sequence[torch.Tensor]
    parameters: Sequence[torch.nn.Parameter]
    settings: EagerSettings
    loss: Loss | None = None
    optimizer: torch.optim.Optimizer | None = None

    def timed(self) -> float:
        """Makes one run and returns its time, µs, on an accelerator until all work is done."""
        self.clear()
        self._synchronize()
        return elapsed_us(self._run)

    def clear(self) -> None:
        """Drops the gradients of the previous step."""
        for parameter in self.parameters:
            parameter.grad = None

    def _run(self) -> None:
        with mark(RUN):
            with torch.set_grad_enabled(self.settings.training):
                outputs = self.settings.call(self.model, self.inputs)
            if self.loss is not None:
                with phase("loss"):
                    loss = self.loss(outputs)
                with phase("backward"):
                    loss.backward()  # type: ignore[no-untyped-call]
                if self.optimizer is not None:
                    with phase("optimizer"):
                        self.optimizer.step()
            self._synchronize()

    def _synchronize(self) -> None:
        if self.settings.device == "cuda":
            torch.cuda.synchronize()


class _Eager(EagerExecutor[torch.nn.Module]):
    def opened(
        self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings
    ) -> AbstractContextManager[_Recording]:
        """Opens `model`; the profiler is on in recorded runs only."""
        return _opened(model, model, arrays, settings, lambda: marked(model))

    def overhead(self, settings: EagerSettings) -> Overhead:
        """Returns the overhead of recording a call; none, as an accelerator times its kernels."""
        return measure_overhead() if settings.device == "cpu" else Overhead(0.0, 0.0)


class _Compiled(_Eager):
    name = "torch-compile"

    def opened(
        self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings
    ) -> AbstractContextManager[_Recording]:
        """Opens `model` after torch.compile, in which modules do not show.

        Raises the errors of the compiler too.
        """
        torch._dynamo.reset()  # else the compiler makes shapes of an earlier batch dynamic
        options: dict[str, Any] = {"cpp.enable_kernel_profile": settings.device == "cpu"}
        compiled: Callable[..., Any] = torch.compile(model, dynamic=False, options=options)
        return _opened(model, compiled, arrays, settings, nullcontext)


class _Torch(_Eager):
    name = "torch"
    compiled = _Compiled()

    def parameters(self, model: torch.nn.Module) -> Iterator[tuple[str, int, bytes]]:
        for name, parameter in model.named_parameters():
            flat = parameter.detach().cpu().contiguous().reshape(-1)
            yield name, parameter.numel(), flat.view(torch.uint8).numpy().tobytes()

    def work(self, model: torch.nn.Module, arrays: Arrays, settings: EagerSettings) -> Works:
        """Returns the work of each row, as torch counts it; a row without is left out."""
        with self.opened(model, arrays, settings) as recording, marked(model):
            recording.step.clear()
            with recorded_events() as recorded, Marking():
                recording.step.timed()
        return work_by_row(runs(recorded)[0])


def phase(name: str) -> Any:
    """Returns a context for a part of the run outside of modules."""
    return mark(PHASE + name)


@contextmanager
def marked(model: torch.nn.Module) -> Iterator[None]:
    """Marks the calls of every module by its path, '' for `model`; removes the hooks at the end."""
    running: list[Any] = []
    handles: list[Any] = []

    def enter(name: str) -> None:
        running.append(mark(name))
        running[-1].__enter__()

    def leave() -> None:
        running.pop().__exit__(None, None, None)

    try:
        for path, module in model.named_modules():
            name = MODULE + path
            before = module.register_forward_pre_hook(lambda *_, name=name: enter(name))
            after = module.register_forward_hook(lambda *_: leave())
            handles += [before, after]
        yield
    finally:
        for handle in handles:
            handle.remove()
        while running:  # a module raised
            leave()


@contextmanager
def recorded_events(device: str = "cpu", memory: bool = False) -> Iterator[profile]:
    """Records the runs of the block; `runs` reads the records afterwards.

    `memory` adds input types and allocations, with more overhead.
    """
    # By default Kineto announces every start and stop on stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(
        use_kineto=True,
        use_device=None if device == "cpu" else device,
        record_shapes=memory,
        profile_memory=memory,
    ) as recorded:
        yield recorded


@cache
def measure_overhead() -> Overhead:
    """Returns the overhead of recording a call; takes some milliseconds, once a process.

    An operator is stamped at the begin and the end of its record. So the overhead lies outside its
    own interval, in the interval of the enclosing operator. A chain of trivial operators takes
    longer by the overhead of each. The shortest of many chains, recorded or not, is free of
    disturbances.
    """
    x = torch.ones(8)
    plain, recorded = _shortest_chain(x), float("inf")
    for _ in range(_CHAIN_TURNS):
        with recorded_events():
            recorded = min(recorded, _shortest_chain(x))
        plain = min(plain, _shortest_chain(x))
    return Overhead(inside=0.0, outside=max(0.0, recorded - plain) / _CHAIN_LENGTH)


def _shortest_chain(x: torch.Tensor) -> float:
    """Returns the time, µs, of the shortest of a few chains."""

    def chain() -> None:
        for _ in range(_CHAIN_LENGTH):
            torch.neg(x)

    with torch.no_grad():
        return min(times_us(chain, _CHAIN_RUNS))


executor: CountingExecutor[torch.nn.Module, Arrays, EagerSettings] = _Torch()
