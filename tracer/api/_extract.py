"""Opens what is extracted, and writes it: see `tracer.extract`."""

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from tracer.api.extract import FAULTS, ExtractArguments
from tracer.containment import memory
from tracer.containment.activity import Progress
from tracer.errors import InputError, ThresholdError, UsageError, locate_errors
from tracer.executors import registry
from tracer.executors.releases import Release
from tracer.exporters import writing
from tracer.exporters.subject import open_subject, runnable_form
from tracer.extraction import Extracted
from tracer.extraction import script as scripts
from tracer.extraction.cutting import Case, Cutter, find_nodes, values_in_bodies
from tracer.extraction.faults import Crash, Fault, Finding, Overflow, Runner, Side, Slower, Wrong
from tracer.extraction.reduction import Reduction
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model
from tracer.graph.operators import rounded_node
from tracer.inputs.feedset import FeedSet, write_test_data
from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
from tracer.interpreter.values import from_tensor
from tracer.records import environment
from tracer.support.files import check_writable, write_atomically
from tracer.support.tolerance import Tolerance


def extract(call: ExtractArguments) -> Extracted:
    """Extracts a part or a fault."""
    is_part = bool(call.node or call.module)
    if is_part == (call.fault is not None):
        raise UsageError("a part or a fault is extracted", "Give --node or --module, or --fault.")
    named = [call.output] if isinstance(call.output, str | Path) else call.output
    paths = [Path(path) for path in named]
    for path in paths:
        if (path.suffix in (".py", ".md")) == is_part:
            kind = "a folder or FILE.onnx" if is_part else "FILE.py or FILE.md"
            raise UsageError(f"{path}: not the name of {kind}", f"Name {kind}.")
        check_writable(path / "model.onnx" if path.is_dir() else path, call.force)
        data = _data_of(path)
        if is_part and not call.force and data.exists() and any(data.iterdir()):
            raise InputError(
                f"{data}: the folder has files", "Choose another folder, or give --force."
            )
    model = runnable_form(with_overrides(open_subject(call.model), call.inputs)).executed
    return extract_part(call, model, paths) if is_part else extract_fault(call, model, paths)


def extract_part(call: ExtractArguments, model: Model, paths: list[Path]) -> Extracted:
    nodes = find_nodes(model, call.node, call.module)
    scope = nodes[0].scope
    request = request_for(call.model, model, call.batch, call.dims, call.inputs, call.seed)

    def values_of(feedset: FeedSet) -> Mapping[str, Any]:
        if scope.path:
            return values_in_bodies(model, feedset.feeds)
        runtime = registry.find_tensors("onnxruntime")
        chosen = {"optimization": "none", "threads": call.threads or None}
        settings = registry.settings_for("onnxruntime", chosen)
        return {**runtime.tensors(model, feedset, settings).by_name, **feedset.feeds}

    feedset, values = on_sizes_that_run(request, values_of)
    case = Cutter(model, scope, values).cut_out(nodes, is_exposed=True)
    proto = case.model()
    written = list[Path]()
    for path in paths:
        if path.suffix != ".onnx":
            path.mkdir(exist_ok=True)
        file = path if path.suffix == ".onnx" else path / "model.onnx"
        writing.write(proto, file, force=call.force)
        graph, data = proto.graph, _data_of(path)
        for old in data.glob("*put_*.pb"):  # of a part with more inputs or outputs
            old.unlink()
        write_test_data(data, graph.input, graph.output, values)
        written += [file, data]
    notes = (*model.notes, *feedset.notes)
    return Extracted(model.name, len(model.nodes), len(nodes), tuple(written), notes=notes)


def _data_of(path: Path) -> Path:
    """Returns the folder of the values of a part, which stands beside its model."""
    return (path.parent if path.suffix == ".onnx" else path) / "test_data_set_0"


def extract_fault(call: ExtractArguments, model: Model, paths: list[Path]) -> Extracted:
    began = time.monotonic()
    share = getattr(call.tolerance, "relative", None)
    if call.fault == "wrong" and share is None and rounded_node(model):
        what = f"{model.name} is quantised, and fusions round otherwise"
        raise UsageError(what, "Say what is wrong: --rtol 1.")
    request = request_for(call.model, model, call.batch, call.dims, call.inputs, call.seed)
    with Runner() as runner:
        fault = chosen_fault(call, runner)
        call.report(0, 0, "looking for the fault")

        def judged(feedset: FeedSet) -> tuple[Case, Finding | None]:
            whole = whole_case(model, feedset.feeds)
            finding = fault.judge(whole, None)
            for side in reversed(fault.sides) if finding is None else ():
                seen = runner.observe(whole, side, has_outputs=False)
                if seen.lacks_memory:
                    what = f"{model.name}: {side.label} ran out of memory: {seen.error}"
                    raise memory.out_of_memory(what)
                if seen.error:
                    why = seen.message or seen.error
                    what = f"{model.name} does not run in {side.label}: {why}"
                    raise InputError(what, "--fault crash shrinks a model that does not run.")
            return whole, finding

        feedset, (whole, finding) = on_sizes_that_run(request, judged)
        if finding is None:
            raise ThresholdError(
                f"{model.name} has no fault '{fault.kind}' in {fault.sides[0].label}",
                "Give the inputs that show it (--inputs), or another side (--against, --ort).",
            )
        plain = Side("", "none", call.threads, fault.sides[0].folders)
        values, count = known_values(runner, whole, plain)
        cutter = Cutter(model, model.scopes[0], {**values, **feedset.feeds})
        whole = replace(whole, kinds=cutter.kinds)
        reduction = Reduction(fault, whole, finding, finding, call.shrink_seconds, call.report)
        reduction.shrink(cutter, cutter.nodes[:count])
        case, finding = reduction.case, reduction.finding
        text = scripts.script(fault.kind, case, finding, fault.sides)
        code = scripts.exit_code(text, fault.sides[0].folders)
        notes = [] if code == 1 else [f"the script ended with exit code {code}, not 1"]
        if not reduction.is_complete:
            notes.append(f"stopped after {call.shrink_seconds:g} s: --shrink-seconds allows more")
        kind = {"wrong": "Wrong result", "crash": "Crash", "slower": "Slow run"}.get(fault.kind)
        operators = ", ".join(dict.fromkeys(node.op_type for node in case.proto.graph.node))
        title = f"{kind or 'Overflow'} of {fault.sides[0].label}: {operators}"
        page = scripts.report(title, finding, fault.sides, text)
    for path in paths:
        write_atomically(path, (text if path.suffix == ".py" else page).encode(), call.force)
    return Extracted(
        model.name, len(model.graph.node), len(case.proto.graph.node), tuple(paths), fault.kind,
        finding.expects, finding.sees, scripts.data_bytes(case), runner.runs,
        time.monotonic() - began, text, page, (*model.notes, *feedset.notes, *notes),
    )  # fmt: skip


def chosen_fault(call: ExtractArguments, runner: Runner) -> Fault:
    """Returns the fault of a call; releases are installed once."""
    if call.fault not in FAULTS:
        raise UsageError(f"there is no fault '{call.fault}'", f"There are {', '.join(FAULTS)}.")
    if call.fault == "overflow":
        side = Side("the interpreter", is_interpreter=True, accumulator=call.accumulator)
        return Overflow(runner, (side,))
    release = f"=={call.ort}" if call.ort else ""
    own = _side(f"ort{release}:{call.optimization}", call.threads, call.report)
    other = _side(call.against or f"ort{release}:none", call.threads, call.report)
    if call.fault == "crash":
        return Crash(runner, (own, other))
    if call.fault == "slower":
        return Slower(runner, (own, other), call.by)
    return Wrong(runner, (own, other), call.tolerance or Tolerance())


def _side(text: str, threads: int, progress: Progress) -> Side:
    engine, _, level = text.partition(":")
    engine, _, version = engine.partition("==")
    if text == "interpreter":
        return Side("the interpreter", is_interpreter=True)
    if engine != "ort":
        raise UsageError(
            f"there is no side '{text}'", "A side is ort:none, ort==1.20.1:all or interpreter."
        )
    settings = registry.settings_for("ort", {"optimization": level or None})
    release = Release(version) if version else None
    folders = tuple(release.folders(progress)) if release else ()
    name = f"onnxruntime {version or environment.versions()['onnxruntime']}"
    return Side(f"{name} (level {settings.optimization})", settings.optimization, threads, folders)


def whole_case(model: Model, feeds: Mapping[str, Any]) -> Case:
    """Returns the model as a case."""
    proto = deepcopy(model.proto)
    stored = model.graph.initializer
    with locate_errors(model.name):
        weights = {tensor.name: from_tensor(tensor, model.folder) for tensor in stored}
    del proto.graph.initializer[:]
    for value in [value for value in proto.graph.input if value.name in weights]:
        proto.graph.input.remove(value)
    proto.ir_version = max(proto.ir_version, IR_WITH_UNLISTED_WEIGHTS)
    return Case(proto, weights, feeds)


def known_values(runner: Runner, whole: Case, side: Side) -> tuple[dict[str, Any], int]:
    """Returns the tensors of a run without optimisation, and how many nodes may have the fault.

    Where that run fails, the nodes from the first one that fails on are left out.
    """

    def run(count: int) -> dict[str, Any] | None:
        proto = deepcopy(whole.proto)
        graph = proto.graph
        del graph.node[count:], graph.output[:]
        names = dict.fromkeys(name for node in graph.node for name in node.output if name)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        seen = runner.observe(Case(proto, whole.weights, whole.feeds), side)
        return None if seen.error else dict(zip(names, seen.outputs, strict=True))

    count, values = len(whole.proto.graph.node), dict[str, Any]()
    runs, fails, tried = 0, count + 1, count
    while fails - runs > 1:
        found = run(tried)
        if found is None:
            fails = tried
        else:
            runs, values = tried, found
        tried = (runs + fails) // 2
    return values, min(fails, count)
