"""`tracer.diff`: what changed between two graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.errors import InputError, ModelError, UsageError
from tracer.support.arguments import ANYTHING, RULES, argument, option
from tracer.text import plural

if TYPE_CHECKING:
    from tracer.analyzers.graph_diff import GraphDiff
    from tracer.exporters.subject import ModelSource
    from tracer.graph.model import Model
    from tracer.inputs.feedset import Feeds, FeedSet


@dataclass(frozen=True)
class DiffArguments(_calls.Contained):
    """The arguments of `diff`."""

    first: ModelSource = argument(rule=ANYTHING)
    second: ModelSource = argument(rule=ANYTHING)
    _: KW_ONLY
    batch: int | None = _calls.batch("1")
    dims: Mapping[str, int] | None = _calls.dims(common=True)
    inputs: str | Path | None = option(
        "Input values to compare on, by the names of A: an .npz file or a test_data_set folder.  "
        "[default: random, twice]",
        None, group=_calls.INPUT, reads=("path",), common=True,
    )  # fmt: skip
    traces: Sequence[str | Path] = option(
        "A trace of each model (tracer profile -o a.trace), whose times are shown.",
        (), rule=RULES["register"], group=_calls.INPUT, flag="--trace", metavar="FILE",
        reads=("path",), multiple=True, common=True,
    )  # fmt: skip
    seed: int = _calls.seed()
    threads: int = _calls.threads()
    register: Sequence[str | Path] = _calls.register()


@_calls.contained(DiffArguments)
def diff(call: DiffArguments) -> GraphDiff:
    """Returns what changed from the graph of `first` to that of `second`, not by their names.

    Both run in onnxruntime without optimisation, on `inputs` or on two sets of random ones. Inputs
    of the second have the names of the first, or else its order. Nodes of one operator with equal
    results are the same; other nodes between equal tensors became each other; behind a change, or
    if one graph is quantised, nodes are matched by what they read, by their weights and by their
    readers. Bodies of If, Loop and Scan are parts of their node. `traces` add the times of nodes.

    Raises the errors of `tracer.errors` for models that cannot run, InputError for models with
    other inputs, and UsageError for traces of others.

    >>> import tracer
    >>> lenet = "models/lenet/lenet.onnx"
    >>> tracer.diff(lenet, lenet).changes
    ()
    """
    from tracer.analyzers.graph_diff import compare_graphs
    from tracer.analyzers.graph_diff.graph import Graph
    from tracer.analyzers.graph_diff.pairing import equal_tensors
    from tracer.exporters.subject import open_subject, runnable_form
    from tracer.graph import stored_weights
    from tracer.graph.operators import rounds_values
    from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides

    opened = [open_subject(source) for source in (call.first, call.second)]
    is_same = stored_weights.are_same(*opened)  # then one runs, and is read
    if len(call.traces) not in (0, 2):
        told = f"{plural(len(call.traces), 'trace')} for two models"
        raise UsageError(told, "Give --trace for A, then for B.")
    times = [_times(*each) for each in zip(opened, call.traces, strict=False)]
    first, second = (runnable_form(with_overrides(m, call.inputs)).executed for m in opened)
    names, own = ([value.name for value in model.inputs] for model in (first, second))
    if len(names) != len(own):
        told = f"{first.name} has {plural(len(names), 'input')} and {second.name} {len(own)}"
        raise InputError(told, "Graphs with the same inputs are compared, by name or in order.")
    own = names if {*names} == {*own} else own
    request = request_for(call.first, first, call.batch, call.dims, call.inputs, call.seed)
    feedset, ran = on_sizes_that_run(request, lambda feeds: _tensors(first, feeds.feeds, call))
    before, of_first = [ran], dict(zip(own, names, strict=True))
    after, of_shapes = _run_apart(second, of_first, feedset, call)
    for each in () if after else (feedset, *request.further_feeds(feedset)):
        call.report(len(after), 2, "running both models")
        before += [_tensors(first, each.feeds, call)] if after else []
        feeds = dict(zip(own, map(each.feeds.__getitem__, names), strict=True))
        after.append(before[-1] if is_same else _tensors(second, feeds, call))
    types = [{node.op_type for node in model.nodes} for model in (first, second)]
    rounds = [(any(map(rounds_values, each)), "MatMulNBits" in each) for each in types]
    is_quantised = rounds[0] != rounds[1]
    graphs = Graph(first, before, names, is_quantised), Graph(second, after, own, is_quantised)
    graphs[1].digests = graphs[0].digests if is_same else {}
    call.report(0, 0, "comparing values")
    settings: dict[str, Any] = {"batch": call.batch, "dims": dict(call.dims or {})}
    settings |= {"seed": call.seed, "inputs": None if call.inputs is None else str(call.inputs)}
    notes = tuple(dict.fromkeys((*of_shapes, *first.notes, *second.notes, *feedset.notes)))
    equal = equal_tensors(*graphs, is_quantised or rounds[0][0])
    return compare_graphs(*graphs, equal, settings, notes, times)


def _run_apart(
    second: Model, names: Mapping[str, str], feedset: FeedSet, call: DiffArguments
) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """Returns the tensors of B on inputs of its own, and a note, if A's do not fit.

    `names` are the inputs of A by those of B. Inputs of a file stay as they are: onnxruntime tells
    what does not fit.
    """
    from tracer.graph.shape_inference import symbol_sizes
    from tracer.inputs.request import on_sizes_that_run, request_for

    try:
        shapes = {own: feedset.shapes[n] for own, n in names.items() if n in feedset.shapes}
        symbol_sizes(second, shapes)
    except InputError as error:
        if call.inputs is None:
            request = request_for(call.second, second, None, {}, None, call.seed)
            _, ran = on_sizes_that_run(request, lambda own: _tensors(second, own.feeds, call))
            what = "nodes are matched by weights and by what they read, not by values"
            return [ran], (f"{error.what}: each model has inputs of its own, and {what}",)
    return [], ()


def _times(model: Model, path: str | Path) -> Mapping[str, float]:
    """Returns the µs per run of each node in a trace. Raises UsageError for another model's."""
    from tracer.storage import trace_file

    trace = trace_file.load(path)
    is_other = trace.model.sha256 != model.sha256
    if is_other or len(trace.runs) != 1:
        what = f"is not of {model.name}" if is_other else f"has {len(trace.runs)} runs"
        raise UsageError(f"{path} {what}", f"Make one: tracer profile {model.name} -o {path}.")
    rows = trace.to_pandas().dropna(subset="time_us")
    return dict(zip(rows["node"], rows["time_us"], strict=True))


def _tensors(model: Model, feeds: Feeds, call: DiffArguments) -> Mapping[str, Any]:
    """Returns every tensor of the main graph, and the inputs, in the types of the model.

    Products of integers are the interpreter's if it has all operators: some processors saturate.
    """
    import numpy as np
    from onnx import helper

    from tracer.executors import registry
    from tracer.graph.operators import computes_in_integers
    from tracer.inputs.feedset import FeedSet

    types = {value.name: value.type.tensor_type.elem_type for value in model.inputs}
    own = {
        name: np.asarray(value, helper.tensor_dtype_to_np_dtype(kind)) if kind else value
        for name, value, kind in ((name, each, types[name]) for name, each in feeds.items())
    }

    def run(name: str, **chosen: Any) -> Mapping[str, Any]:
        chosen |= {"threads": call.threads or None, "register": call.register or None}
        settings = registry.settings_for(name, chosen)
        found = registry.find_tensors(name).tensors(model, FeedSet(own, None), settings)
        return {**own, **found.by_name}

    if any(computes_in_integers(node.op_type) for node in model.nodes):
        with suppress(ModelError):
            return run(registry.REFERENCE)
    return run("onnxruntime", optimization="none")
