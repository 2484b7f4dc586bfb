"""The plan of a tuned model: made of steps, written to a file, read, and applied to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from tracer.errors import InputError, refusing
from tracer.records.tuned import Plan, Speedup
from tracer.support.files import read_regular
from tracer.tuning.changes import Step, Steps, find, ordered
from tracer.tuning.machine import Machine
from tracer.tuning.setup import Setup

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


def read(path: Path) -> Plan:
    """Returns the plan in a file. Raises InputError where the file holds none."""
    hint = "Write one with tracer tune MODEL --save plan.json."
    with refusing(lambda why: InputError(f"{path}: not a plan: {why}", hint)):
        return msgspec.json.decode(read_regular(path), type=Plan)


def steps_of(plan: Plan) -> Steps:
    """Returns the steps of a plan, in order. Raises UsageError for a change that is not known."""
    return ordered([Step(find(name), value) for name, value in plan.steps])


def batch_of(plan: Plan) -> int | None:
    """Returns the batch size of a plan; None where it leaves that of the inputs."""
    return next((int(value) for name, value in plan.steps if name == _BATCH), None)


def applied(plan: Plan, setup: Setup) -> Setup:
    """Returns `setup`, whose inputs have the plan's batch size, with the other steps of the plan.

    Raises the errors of the changes.
    """
    for step in steps_of(plan):
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
