"""Results in files: read one that another call saved, merge several, write one."""

from pathlib import Path

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.table import Source, merged
from tracer.errors import UsageError
from tracer.executors import foreign
from tracer.records.result import Result
from tracer.records.trace import Trace
from tracer.records.whatif import WhatIf
from tracer.storage import trace_file, whatif_file
from tracer.support.arguments import check_arguments, instance, maybe


def load(path: str | Path) -> Trace:
    """Returns the trace at `path`. Raises InputError where the file holds none.

    >>> import tracer
    >>> path = tracer.count("models/lenet/lenet.onnx").save("lenet.trace", force=True)
    >>> tracer.load(path)
    Trace(lenet.onnx, 12 nodes; not run)
    """
    check_arguments(locals())
    return trace_file.load(path)


def load_result(path: str | Path, model: Path | None = None) -> Trace | WhatIf:
    """Returns the trace or the what-if at `path`, or a trace of another program's profile there.

    `model` is the file of the model that a profile of onnxruntime is of. Raises InputError where
    the file holds none of these.
    """
    check_arguments({"path": path})
    if is_profile(path):
        return load_profile(path, model)
    if whatif_file.holds_what_if(Path(path)):
        return whatif_file.load(Path(path))
    return load(path)


def is_profile(path: str | Path) -> bool:
    """Returns whether a file is JSON, as profilers of other programs write it."""
    return foreign.kind_of(Path(path)) is not None


def load_profile(path: str | Path, model: Path | None = None) -> Trace:
    """Returns the trace of a profile of another program. Raises the errors of `load_result`."""
    from tracer.api._foreign import foreign_trace

    return foreign_trace(Path(path), model)


def merge(*traces: Trace | str | Path) -> Trace:
    """Returns one trace with the times, work, overflow and energy of all `traces` in its rows.

    A trace is an object or the path of a .trace file. All are of the same model, by its content.
    The rows are those of the base: the first trace with times of the model itself, else the first.
    Times under another executor are in columns marked with its name, such as
    `time_us@reference`; columns that the base lacks come from the other traces. Raises UsageError
    without traces, InputError for a file that is no trace, and for traces that contradict each
    other (see `tracer.analyzers.table`).

    >>> import tracer
    >>> times = tracer.profile("models/lenet/lenet.onnx", runs=5)
    >>> values = tracer.interpret("models/lenet/lenet.onnx", runs=1)
    >>> merged = tracer.merge(times, values).to_pandas()
    >>> "time_us@reference" in merged and "value_max" in merged
    True
    """
    if not traces:
        raise UsageError("there is no trace to merge", "Name one or more.")
    check_arguments({"traces": traces})
    return merged(
        [
            Source(f"trace {position}", each)
            if isinstance(each, Trace)
            else Source(str(each), load(each))
            for position, each in enumerate(traces, 1)
        ]
    )


def save(
    result: Result, path: str | Path, options: ViewOptions | None = None, force: bool = False
) -> Path:
    """Writes `result` to `path`, in the format of its extension, and returns the path.

    `options` set what the file shows. Raises UsageError for an unknown format, InputError where
    the file exists (unless `force`) or cannot be written.

    >>> import tracer
    >>> tracer.save(tracer.count("models/lenet/lenet.onnx"), "work.csv", force=True).name
    'work.csv'
    """
    rules = {"options": maybe(instance("tracer.records.result.ViewOptions"))}
    check_arguments({"result": result, "path": path, "options": options, "force": force}, rules)
    return result.save(path, options, force)
