"""The plan of a tuned model: made, written, read and applied; and the same as commands and code."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from tracer.errors import InputError, refusing
from tracer.records import environment
from tracer.records.transformed import Plan, Speedup
from tracer.support.files import read_regular
from tracer.tuning.changes import Step, Steps, find, ordered
from tracer.tuning.setup import Machine, Setup

_BATCH = "batch"
_SETTINGS = ("threads", "optimization", "provider", "session")
"""Settings of a run that a plan tells; the others say how long it is measured."""


def plan_of(
    base: Setup, tuned: Setup, steps: Steps, goal: str, machine: Machine, speedup: Speedup | None
) -> Plan:
    """Returns the plan of these steps, which made `tuned` of `base`."""
    settings = msgspec.json.decode(msgspec.json.encode(asdict(tuned.settings)))
    return Plan(
        model=base.model.name.rpartition("/")[2],
        sha256=base.model.sha256,
        goal=goal,
        steps=tuple((step.change.name, step.value) for step in steps),
        settings={name: settings[name] for name in _SETTINGS},
        processor=machine.cpu,
        cores=machine.cores,
        onnxruntime=machine.onnxruntime,
        speedup=speedup,
    )


def read_plan(path: Path) -> Plan:
    """Returns the plan in a file. Raises InputError where the file holds none."""
    hint = "Write one with tracer tune MODEL --save plan.json."
    with refusing(lambda why: InputError(f"{path}: not a plan: {why}", hint)):
        text = read_regular(path).decode()  # of bytes, keys that are not known are not checked
        return msgspec.json.decode(text, type=Plan)


def batch_of(plan: Plan) -> int | None:
    """Returns the batch size of a plan; None where it leaves that of the inputs."""
    return next((int(value) for name, value in plan.steps if name == _BATCH), None)


def apply_plan(plan: Plan, setup: Setup) -> Setup:
    """Returns `setup`, whose inputs have the plan's batch size, with the other steps of the plan.

    Raises UsageError for a change that is not known, and the errors of the changes.
    """
    for step in ordered([Step(find(name), value) for name, value in plan.steps]):
        if step.change.name != _BATCH:
            setup = step.apply(setup)
    return setup


def differences(plan: Plan, setup: Setup, machine: Machine) -> tuple[str, ...]:
    """Returns notes on what differs from the measurements of a plan: model, machine, software."""
    pairs: Sequence[tuple[str, Any, Any]] = (
        ("another model", plan.sha256, setup.model.sha256),
        (f"another processor, {plan.processor}", plan.processor, machine.cpu),
        (f"{plan.cores} cores, not {machine.cores}", plan.cores, machine.cores),
        (
            f"onnxruntime {plan.onnxruntime}, not {machine.onnxruntime}",
            plan.onnxruntime,
            machine.onnxruntime,
        ),
    )
    found = [what for what, planned, here in pairs if planned != here]
    if not found:
        return ()
    return (f"the plan was made for {', '.join(found)}: tune again to know what is best here",)


_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED"}
TUNED = "tuned.onnx"
"""The name of a changed model in commands and code."""


def model_commands(base: Setup, steps: Steps, model: str) -> tuple[str, ...]:
    """Returns how to make the changed model of `base`, the file `model`, a line for each step."""
    made = [step for step in steps if step.change.command is not None]
    sources = [model, *(TUNED for _ in made)]
    return tuple(
        step.change.command(base, step.value, source)
        for step, source in zip(made, sources, strict=False)
        if step.change.command is not None
    )


def session_code(setup: Setup, is_changed: bool, model: str) -> tuple[str, ...]:
    """Returns lines that open the session of `setup` on the file `model`, or on the changed one."""
    provider = environment.provider_of(setup.settings.provider).name
    path = json.dumps(TUNED if is_changed else model, ensure_ascii=False)
    options = tuple(_options(setup))
    disabled = setup.session.disabled
    others = f", disabled_optimizers={list(disabled)}" if disabled else ""
    opened = f'session = ort.InferenceSession({path}, options, providers=["{provider}"]{others})'
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
        yield f"options.add_free_dimension_override_by_name({json.dumps(name)}, {size})"
    entries = dict(session.entries)
    if session.flushes_denormals:  # of the thread that calls, only in the first session
        entries["session.set_denormal_as_zero"] = "1"
    for name, value in entries.items():
        yield f'options.add_session_config_entry("{name}", "{value}")'


_BINDING = (
    "binding = session.io_binding()  # bind once: inputs by bind_ortvalue_input, then",
    "session.run_with_iobinding(binding)  # outputs by bind_ortvalue_output, then run",
)
