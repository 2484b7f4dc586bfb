"""The lines of Python that open a session as a setup does, and commands for a changed model."""

from __future__ import annotations

from collections.abc import Iterator

from tracer.tuning.changes import Steps
from tracer.tuning.setup import Setup

_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED"}
TUNED = "tuned.onnx"
"""The name of a changed model in commands and code."""


def commands(base: Setup, steps: Steps, model: str) -> tuple[str, ...]:
    """Returns how to make the changed model of `base`, the file `model`, a line for each step."""
    made = [step for step in steps if step.change.command is not None]
    sources = [model, *(TUNED for _ in made)]
    return tuple(
        step.change.command(base, step.value, source)
        for step, source in zip(made, sources, strict=False)
        if step.change.command is not None
    )


def code(setup: Setup, is_changed: bool, model: str) -> tuple[str, ...]:
    """Returns lines that open the session of `setup` on the file `model`, or on the changed one."""
    path = TUNED if is_changed else model
    options = tuple(_options(setup))
    disabled = setup.session.disabled
    others = f", disabled_optimizers={list(disabled)}" if disabled else ""
    opened = (
        f'session = ort.InferenceSession("{path}", options, '
        f'providers=["{_provider(setup.settings.provider)}"]{others})'
    )
    bound = tuple(_BINDING) if setup.session.bound else ()
    return ("import onnxruntime as ort", "", "options = ort.SessionOptions()", *options, opened,
            *bound)  # fmt: skip


def _options(setup: Setup) -> Iterator[str]:
    """Yields a line for each option that is not onnxruntime's default."""
    settings, session = setup.settings, setup.session
    if settings.threads:
        yield f"options.intra_op_num_threads = {settings.threads}"
    if settings.optimization in _LEVELS:
        level = f"ort.GraphOptimizationLevel.ORT_{_LEVELS[settings.optimization]}"
        yield f"options.graph_optimization_level = {level}"
    if session.parallel:
        yield "options.execution_mode = ort.ExecutionMode.ORT_PARALLEL"
    if session.inter_op_threads:
        yield f"options.inter_op_num_threads = {session.inter_op_threads}"
    if not session.memory_pattern:
        yield "options.enable_mem_pattern = False"
    if not session.arena:
        yield "options.enable_cpu_mem_arena = False"
    for name, size in session.dims.items():
        yield f'options.add_free_dimension_override_by_name("{name}", {size})'
    entries = dict(session.entries)
    if session.flushes_denormals:  # of the thread that calls, only in the first session
        entries["session.set_denormal_as_zero"] = "1"
    for name, value in entries.items():
        yield f'options.add_session_config_entry("{name}", "{value}")'


def _provider(short: str) -> str:
    import onnxruntime as ort

    names = ort.get_available_providers()
    own = {name.removesuffix("ExecutionProvider").lower(): name for name in names}
    return str(own.get(short.lower(), short))


_BINDING = (
    "binding = session.io_binding()  # bind once: inputs by bind_ortvalue_input, then",
    "session.run_with_iobinding(binding)  # outputs by bind_ortvalue_output, then run",
)
