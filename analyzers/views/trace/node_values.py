"""What viewers of models show at each node of a trace: times, work, and widths of accumulators."""

from collections import Counter

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import wall
from tracer.analyzers.views.node_values import NodeValues
from tracer.analyzers.views.text import FORMATS, micros
from tracer.analyzers.views.timeline import Value
from tracer.analyzers.views.trace.sections import Section, sections
from tracer.analyzers.views.trace.timed_rows import present
from tracer.records.columns import BY_NAME
from tracer.records.topology import Topology
from tracer.records.trace import Trace, distinctions

_COLUMNS = (
    "time_us", "time_share", "macs", "flops", "params", "bound", "roof_fraction", "bits_observed",
    "bits_guaranteed", "bits", "overflow_outputs", "energy", "peak_bytes", "timed_in",
)  # fmt: skip


def node_values(trace: Trace, options: ViewOptions) -> NodeValues:
    """Returns the values as texts, as a table shows them; those of several runs say of which."""
    shown = sections(trace)
    runs = [section.run for section in shown if section.run is not None]
    labels = distinctions(runs) if len(runs) == len(shown) else ("",) * len(shown)
    model: dict[str, Value] = {}
    nodes: dict[str, dict[str, Value]] = {}
    found = _names(trace.model.topology)
    for section, label in zip(shown, labels, strict=True):
        mark = f" ({label})" if label else ""
        model |= {f"{name}{mark}": text for name, text in _of_model(section).items()}
        for row in present(section.nodes, ("node", *_COLUMNS)):
            name = found.get(str(row["node"]), "") if found is not None else str(row["node"])
            if name:
                values = {f"{_header(c)}{mark}": _text(c, row[c]) for c in _COLUMNS if c in row}
                nodes.setdefault(name, {}).update(values)
    return NodeValues(model, nodes)


def _of_model(section: Section) -> dict[str, Value]:
    nodes = f"{micros(float(section.nodes['time_us'].sum()))} µs"
    if section.run is None:
        return {}
    return {"wall": f"{micros(wall(section.run)['mean'])} µs", "sum of nodes": nodes}


def _header(column: str) -> str:
    return BY_NAME[column].header or column


def _text(column: str, value: Value) -> str:
    return FORMATS[BY_NAME[column].format](value)


def _names(topology: Topology | None) -> dict[str, str] | None:
    """Returns the name of each node that has one of its own, by key; None where not known."""
    if topology is None or topology.names is None:
        return None
    counts = Counter(topology.names)
    pairs = zip(topology.nodes, topology.names, strict=True)
    return {key: name for key, name in pairs if name and counts[name] == 1}
