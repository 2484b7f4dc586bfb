"""Counts the work of every node of an ONNX model: see `tracer.count`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import pandas as pd

from tracer.analyzers import energy as energy_models
from tracer.analyzers.cost import bit_operations, cost, typed_model
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.memory import memory
from tracer.analyzers.table import node_table
from tracer.api._generation import planned, refuse_other_inputs
from tracer.api.count import COUNT_WITH_RUN, Count
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.exporters.subject import open_subject, runnable_form
from tracer.graph.model import Model
from tracer.graph.shape_inference import Shapes, TensorTypes
from tracer.inputs.decoder import Decoder, PhaseRequest, recognise
from tracer.inputs.request import (
    Phase,
    Phases,
    Request,
    on_sizes_that_run,
    request_for,
    with_overrides,
)
from tracer.inputs.sizes import batch_of, choose, misfit, require_fit
from tracer.limits import Limits, enforced
from tracer.records import environment
from tracer.records.model_info import ModelInfo
from tracer.records.trace import Trace, typed_table
from tracer.shapes import infer

if TYPE_CHECKING:
    from tracer.accumulators.spec.policy import Rule

_EXECUTOR = "onnxruntime"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The types of all tensors, and how often nodes run where a run has told it, by key."""

    shapes: Shapes
    types: TensorTypes = field(repr=False)
    calls: Mapping[str, float] | None
    notes: tuple[str, ...]
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class _NarrowSums:
    """The rules of the nodes that would have narrow accumulators, by key; `notes` on others.

    `policy` is the spelling of all that was asked for. `columns` are `bits` (Int64), `accumulator`
    and `operands`, by node key: accumulators of integers have a width; others are spelled, and the
    format of their operands.
    """

    policy: str
    rules: "Mapping[str, Rule]"
    notes: tuple[str, ...]
    columns: pd.DataFrame = field(repr=False)


def count(call: Count) -> Trace:
    """Returns the trace of a count. A run that tells the shapes is no part of it.

    The rows of one phase of a language model follow those of another.
    """
    if call.run and call.inputs is not None:
        raise UsageError(
            "--run has random values, and --inputs has those of a file", "Give one of them."
        )
    phases = Phases.of(call.prefill, call.decode, call.past)
    energy_model = None if call.energy is None else energy_models.find(call.energy)
    loaded = with_overrides(open_subject(call.model), call.inputs)
    runs = call.run or call.inputs is not None
    if runs:
        loaded = runnable_form(loaded)
    sums = _narrow_sums(loaded, call)
    generation = None
    with enforced(call.limits or Limits()):
        if phases is not None:
            refuse_other_inputs(call.dims, call.inputs)
            decoder = recognise(loaded)
            generation = planned(decoder, phases)
            all_sizes = [_of_a_phase(decoder, call, each) for each in phases.in_order()]
        else:
            request = request_for(call.model, loaded, call.batch, call.dims or {}, call.inputs)
            if runs:
                all_sizes = [_of_a_run(request)]
            else:
                chosen = choose(loaded, request.batch, request.dims or {})
                types = infer(loaded, chosen.shapes, checks=True)
                if request.batch is not None or request.dims:
                    require_fit(loaded, chosen.shapes)
                all_sizes = [_Sizes(chosen.shapes, types, None, chosen.notes)]
    rules, unfit = (sums.rules, sums.notes) if sums else ({}, ())
    pricing = None if energy_model is None else energy_models.Pricing(energy_model, rules)
    counts = [_counted(loaded, sizes, call.convention, pricing, sums) for sizes in all_sizes]
    tables, parameters, notes = zip(*counts, strict=True)
    return Trace(
        model=ModelInfo.of(loaded, parameters[0]),
        environment=environment.observe(),
        settings={
            "dims": dict(call.dims or {}), "convention": call.convention,
            "accumulator": sums and sums.policy, "energy": energy_model and energy_model.settings,
            "feeds": None if call.inputs is None else str(call.inputs), "run": call.run,
            "phases": None if phases is None else asdict(phases),
        },
        runs=(),
        nodes=typed_table(pd.concat(tables, ignore_index=True)),
        notes=tuple(dict.fromkeys([*loaded.notes, *chain.from_iterable(notes), *unfit])),
        generation=generation,
    )  # fmt: skip


def _counted(
    model: Model,
    sizes: _Sizes,
    convention: str,
    pricing: energy_models.Pricing | None,
    sums: _NarrowSums | None,
) -> tuple[pd.DataFrame, tuple[int | None, int | None], tuple[str, ...]]:
    """Returns the rows of the node table at one set of sizes, the parameters, and notes."""
    types = sizes.types
    typed_model = TypedModel(model, types)
    counted = cost(typed_model, sizes.calls, convention)
    if counted.misfit and sizes.calls is None:
        raise misfit(model, sizes.shapes, counted.misfit)
    energies = pricing and pricing.energies(typed_model, counted.table)
    needs = memory(typed_model, idle=counted.idle)
    repeats = counted.repeats if any(times != 1 for times in counted.repeats.values()) else {}
    calls = pd.DataFrame({"calls": pd.Series(repeats, dtype="float64")})  # where not all are 1
    work = [counted.table, bit_operations(typed_model, counted.table["macs"])]
    work += [energies.table] if energies else []
    work += [sums.columns] if sums else []
    table = node_table(model, types, [*work, calls, needs])
    advice = (COUNT_WITH_RUN,) if counted.has_open_shapes and sizes.calls is None else ()
    table = table.assign(batch=batch_of(model, sizes.shapes))
    if sizes.phase is not None:
        table = table.assign(phase=sizes.phase.name, past=sizes.phase.past)
    notes = (*sizes.notes, *counted.every_note, *advice, *(energies.notes if energies else ()))
    return table, counted.parameters, notes


def _of_a_phase(decoder: Decoder, call: Count, phase: Phase) -> _Sizes:
    """Returns the types at the sizes of `phase`, those of a run of it if there is to be one."""
    entries = call.batch or decoder.batch or 1
    if call.run:
        request = PhaseRequest(decoder.model, batch=entries, decoder=decoder, phase=phase)
        return replace(_of_a_run(request), phase=phase)
    step = phase.step(entries)
    decoder.check_nodes(step)
    shapes = decoder.shapes(step)
    require_fit(decoder.model, shapes)
    types = infer(decoder.model, shapes).updated(decoder.presents(step))
    return _Sizes(shapes, types, None, (), phase)


def _of_a_run(request: Request) -> _Sizes:
    """Returns the types, branches and trip counts of one run without optimisation."""
    model, runtime = request.model, registry.find_optimizing(_EXECUTOR)
    settings = registry.settings_for(_EXECUTOR, {"optimization": "none"})
    feedset, graph = on_sizes_that_run(
        request.first_batch(), lambda feeds: runtime.optimize(model, feeds, settings),
        registry.try_feeds(_EXECUTOR, model, settings),
    )  # fmt: skip
    seen = typed_model.observe(model, graph.kernels)
    types, differences = seen.applied(model, infer(model, feedset.shapes))
    told = f"shapes, branches and trip counts are those of a run in {_EXECUTOR}"
    return _Sizes(feedset.shapes, types, seen.calls, (*feedset.notes, told, *differences))


def _narrow_sums(model: Model, call: Count) -> _NarrowSums | None:
    """Returns the narrow sums that a count is asked about; None without any.

    Raises UsageError for what is no policy, and for formats of operands alone.
    """
    if call.accumulator is None:
        if call.fixed is not None or call.operands is not None:
            raise UsageError(
                "formats of operands are about narrow accumulators", "Set an accumulator as well."
            )
        return None
    # 0.05 s, and most counts are of exact sums
    from tracer.accumulators.emulation import AccumulatorEmulation
    from tracer.accumulators.hardware import spelling
    from tracer.accumulators.nodes import rules_of
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.spec.policy import as_policy

    chosen = as_policy(call.accumulator, call.fixed, call.operands)
    emulation = AccumulatorEmulation(model, chosen)
    floats, bits = emulation.float_rules, dict[str, int]()
    rules: dict[str, Rule] = {}
    for node, rule in rules_of(chosen, model).items():
        if node in floats or node in emulation.runners:
            rules[node] = own = floats.get(node, rule)
            if isinstance(own.accumulator, Accumulator):
                bits[node] = own.accumulator.bits
    others = {node: rule for node, rule in rules.items() if node not in bits}
    spelled = {node: spelling(rule.accumulator) for node, rule in others.items()}
    formats = {node: str(rule.operands) for node, rule in others.items() if rule.operands}
    columns = pd.DataFrame(
        {
            "bits": pd.Series(bits, dtype="Int64"),
            "accumulator": pd.Series(spelled),
            "operands": pd.Series(formats),
        }
    )
    return _NarrowSums(str(chosen), rules, emulation.notes, columns)
