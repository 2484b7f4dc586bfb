"""The view of a Narrowed: the score by width, and what was changed of each node.

Its widths are also written as the toolchains for FPGAs configure them, FINN and hls4ml. Both read
QONNX models and number the nodes of each operator in the order of the graph. FINN makes an MVAU of
each product with stored weights, and a VVAU of each depthwise convolution, numbered after
`convert_to_hw` and before it chooses HLS or RTL; its builder reads the configuration from
`specialize_layers_config_file`. hls4ml's is in the layout of
`config_from_onnx_model(granularity="name")`. Its accumulators are in fixed point: `fixed<W, I>` has
W bits, I of them before the binary point. A sum of W bits in units of 2^-f is `fixed<W, W - f>`;
f is 0 where hls4ml multiplies integers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.exactness import Exactness
from tracer.analyzers import whatif
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import page as pages
from tracer.analyzers.views.drawing import HIGH, PLAIN, empty_figure, plain
from tracer.analyzers.views.file_formats.json import fields
from tracer.analyzers.views.report import Accuracy, Content, RunContent, drawings
from tracer.analyzers.views.text import plural, score, si
from tracer.errors import UsageError
from tracer.graph import stored_weights
from tracer.graph.loading import from_proto
from tracer.graph.model import Model, Node, encoded
from tracer.graph.operators import MULTIPLYING
from tracer.interpreter import values
from tracer.quantization.to_qonnx import to_qonnx
from tracer.records.columns import Fold
from tracer.records.transformed import Narrowed, NarrowedNode
from tracer.text import agree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (6.4, 3.6)
_MOST_REASONS = 5
_ASKED, _NOT_ASKED = 2, 7
"""Ranks of the widths that the guarantee is about, and of the others."""
_LAST = ("measure", "energy_before", "energy")
_COLUMNS = sorted(pages.record_columns(NarrowedNode), key=lambda column: column.field in _LAST)

_CURVES = ("narrowed", "saturated")
_FOLDS: dict[str, Fold] = {
    "guaranteed_before": "max", "guaranteed": "max", "observed_before": "max", "observed": "max",
    "bits": "max", "sqnr_db": "min", "energy_before": "sum", "energy": "sum",
}  # fmt: skip
_USUAL = {"parts": 1, "overflows": 0}
"""Columns that are left out where all nodes have this number."""


def page(result: Narrowed, options: ViewOptions) -> pages.Page:
    """The scores, each width where there are several, and the nodes."""
    machine = result.settings.get("machine")
    sums = f"registers of {machine}" if machine else f"sums of {result.bits} bits"
    title = f"{result.model.name} · {sums}"
    if result.settings.get("exact"):
        title += ", powers of two"
    if result.settings["tile"] is not None:
        title += f", {plural(result.settings['tile'], 'term')} each"
    if result.settings["weight_bits"] is not None:
        title += f", weights of {result.settings['weight_bits']} bits"
    shown = [
        column
        for column in _COLUMNS
        if column.field not in _USUAL
        or any(getattr(node, column.field) != _USUAL[column.field] for node in result.nodes)
    ]
    if result.settings["guarantee"] != "any-input":  # widths on the data come first
        other = {_ASKED: _NOT_ASKED, _NOT_ASKED: _ASKED}
        shown = [replace(each, rank=other.get(each.rank, each.rank)) for each in shown]
    head = (*_sentences(result), *_promises(result))
    nodes = pages.Table(title, shown, table(result, options), head=head, is_long=True)
    if len(result.curve) < 2:
        return pages.Page((nodes,), result.notes)
    unit = result.judgement.unit
    rows = pd.DataFrame([asdict(each) for each in result.curve])
    rows["change"] = rows["narrowed"] - result.score
    rows["kept"] = ["kept" if bits == result.bits else "" for bits in rows["bits"]]
    columns = (
        pages.number_column("bits", "bits", "{:.0f}".format, 0),
        pages.number_column("narrowed", "narrowed", lambda v: score(v, unit), 1),
        pages.number_column("change", "change", lambda v: f"{v:+.3g}", 2),
        pages.number_column("saturated", "saturated", lambda v: score(v, unit), 1),
        pages.name_column("", "kept", 0),
    )
    title = f"{result.model.name} · {whatif.metric(result.judgement)} by width"
    return pages.Page((pages.Table(title, columns, rows), nodes), result.notes)


def table(result: Narrowed, options: ViewOptions) -> pd.DataFrame:
    """A row for each node that sums, in the order of the graph."""
    return pages.record_table(NarrowedNode, result.nodes)


def document(result: Narrowed, options: ViewOptions) -> dict[str, Any]:
    """Everything but the model itself."""
    about = ("model", "settings", "judgement", "score", "samples", "bits")
    return fields(result, *about, "curve", "energy", "energies", "nodes", "notes")


def model(result: Narrowed, options: ViewOptions) -> bytes:
    """The narrowed model. Raises UsageError where its weights are in a file beside the output."""
    stored_weights.refuse_apart(result.proto)
    return encoded(result.proto, result.model.name, sorted_maps=True)


def certificate(result: Narrowed, options: ViewOptions) -> bytes:
    """The certificate of the model. Raises UsageError where no node is certified."""
    if result.certificate is None:
        raise UsageError(
            f"{result.model.name}: some inputs may make every node overflow: there is nothing to "
            "certify",
            "Narrow it to more bits.",
        )
    return result.certificate.to_json()


def finn(result: Narrowed, options: ViewOptions) -> dict[str, Any]:
    """The accumulators of FINN's nodes."""
    return finn_configuration(from_proto(result.proto), _widths(result))


def hls4ml(result: Narrowed, options: ViewOptions) -> dict[str, Any]:
    """The accumulators of hls4ml's layers."""
    return hls4ml_configuration(from_proto(result.proto), _widths(result))


def qonnx(result: Narrowed, options: ViewOptions) -> bytes:
    """The narrowed model in QONNX. Raises UsageError as `model`, ModelError without a Quant."""
    stored_weights.refuse_apart(result.proto)
    return encoded(to_qonnx(result.proto), result.model.name, sorted_maps=True)


def _widths(result: Narrowed) -> dict[str, int]:
    """Returns the bits of the accumulators, by node of the narrowed model.

    They hold the sums of any input. Where sums fit the data alone, they are those that were asked
    for. Raises UsageError for sums of tiles, which have two widths, and of terms in another order.
    """
    moved = [node.node for node in result.nodes if node.is_reordered]
    if moved:
        raise UsageError(
            f"FINN and hls4ml have no Gather that reorders terms, as before {', '.join(moved)}",
            "Narrow with --guarantee any-input, or write the model in QONNX.",
        )
    if result.settings.get("tile") is not None or result.settings.get("machine"):
        raise UsageError(
            "FINN and hls4ml have one width for a sum, not one for tiles",
            "Narrow to a width, without --tile.",
        )
    on_data = result.settings.get("guarantee") == "this-data"
    certified = {} if result.certificate is None else result.certificate.nodes
    rows = {
        node.node: node.bits if on_data and not node.fits else node.guaranteed
        for node in result.nodes
    }
    return rows | {key: node.bits_guaranteed for key, node in certified.items()}


def report(result: Narrowed, options: ViewOptions) -> Content:
    """One run, whose rows are the nodes that sum: their widths before and after, and the scores."""
    graphs, (graph,) = drawings([result.model])
    shown, unit = page(result, options), result.judgement.unit
    lines = [*_sentences(result), *_promises(result)]
    if result.certificate is not None:
        count = plural(len(result.certificate.nodes), "node")
        lines.append(f"certificate: {count} of {len(result.nodes)}, whose sums fit for any input")
    topology = result.model.topology
    position = {} if topology is None else {node: at for at, node in enumerate(topology.nodes)}
    rows = table(result, options)
    rows["index"] = pd.array([position.get(node) for node in rows["node"]], "Int64")
    run = RunContent(
        label=result.model.name,
        title=shown.tables[-1].title,
        lines=tuple(lines),
        rows=rows,
        graph=graph,
    )
    scores = [(name, tuple(getattr(each, name) for each in result.curve)) for name in _CURVES]
    widths = tuple(each.bits for each in result.curve)
    metric = result.judgement.metric.rpartition(":")[2]
    return Content(
        title=run.title,
        kind="narrow",
        page=shown,
        runs=(run,),
        graphs=graphs,
        specs=pages.record_specs(NarrowedNode, _FOLDS),
        accuracy=tuple(
            Accuracy(0, metric, unit, widths, values, (), "", {"kept": result.bits}, name)
            for name, values in scores
            if len(widths) > 1
        ),
        first={"view": "widths", "sort": "guaranteed_before", "color": "guaranteed_before"},
    )


def figure(result: Narrowed, options: ViewOptions) -> Figure:
    """The scores by width: narrowed, and saturated."""
    chart = empty_figure(*_INCHES)
    axes = chart.subplots()
    widths = [each.bits for each in result.curve]
    for label, colour in (("narrowed", PLAIN), ("saturated", HIGH)):
        scores = [getattr(each, label) for each in result.curve]
        axes.plot(widths, scores, color=colour, marker="o", markersize=4, label=label)
    axes.axhline(result.score, color="#777777", linewidth=0.8, linestyle="--", label="wide")
    axes.set_xticks(widths)
    axes.set_xlabel("bits of the accumulators")
    axes.set_ylabel(plain(whatif.metric(result.judgement)))
    axes.set_title(plain(result.model.name), loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return chart


def _sentences(result: Narrowed) -> Iterator[str]:
    judgement, scores = result.judgement, result.scores
    before, after, saturated = (
        whatif.score(judgement, value)
        for value in (result.score, scores.narrowed, scores.saturated)
    )
    data = f"{plural(result.samples, 'sample')} of {result.settings['test']}"
    if result.settings.get("exact"):
        yield f"{before} before, {after} in powers of two ({data})"
        if result.certificate is not None and result.certificate.exact is not None:
            yield from exactness(result.certificate.exact)
    else:
        others = f"{after} narrowed, {saturated} where sums saturate"
        yield f"{before} in wide accumulators, {others} ({data})"
    if result.energy is not None:
        wide, narrow = result.energies
        unit, model = result.energy.unit, result.energy.model
        unknown = (node.energy is None and node.op_type in MULTIPLYING for node in result.nodes)
        least = "at least " if any(unknown) else ""  # poolings have none
        yield f"energy per sample: {least}{si(wide)} -> {si(narrow)} {unit} ({model})"


def exactness(proved: Exactness) -> Iterator[str]:
    """Yields what is proved of the float operations of a model, and which nodes may round."""
    exact = [name for name, holds in proved.outputs.items() if holds]
    if len(exact) == len(proved.outputs):
        yield f"no float operation rounds: {', '.join(exact)} has the same bits on every machine"
        return
    until = ", ".join([*exact, *proved.tensors]) or "none"
    reads = agree(len(proved.after), "reads", "read")
    yield (
        f"{plural(len(proved.inexact), 'node')} may round, and {len(proved.after)} {reads} their "
        f"results; tensors with the same bits on every machine: {until}"
    )
    yield from (f"{node}: {why}" for node, why in list(proved.inexact.items())[:_MOST_REASONS])
    if len(proved.inexact) > _MOST_REASONS:
        yield f"… and {len(proved.inexact) - _MOST_REASONS} more"


def _promises(result: Narrowed) -> Iterator[str]:
    """Yields what is known of the sums: of any input, and of the data of the scores."""
    wide = [node for node in result.nodes if not node.fits]
    if not wide:
        yield f"no input makes a sum of the {plural(len(result.nodes), 'node')} overflow"
        return
    if result.settings["guarantee"] == "any-input":
        names = ", ".join(f"{node.node} ({node.guaranteed} bits)" for node in wide)
        yield f"some inputs may overflow: nothing could be changed of {names}"
    over = [node for node in wide if node.overflows]
    count = sum(node.overflows for node in over)
    if not over:
        yield f"nothing overflows on these data; some inputs may, in {plural(len(wide), 'node')}"
    else:
        where = plural(len(over), "node")
        yield f"{plural(count, 'output')} of {where} overflowed on these data, and saturated"


_OPERATORS = {"Conv": "Conv", "MatMul": "MatMul", "Gemm": "MatMul"}
"""Operators that multiply, and the operators they are in QONNX: GemmToMatMul splits a Gemm."""


@dataclass(frozen=True, slots=True)
class Product:
    """A node that multiplies, and its name after qonnx's `cleanup_model`: Conv_0, MatMul_2.

    `is_depthwise`: each input channel has filters of its own. `has_weights`: its second operand is
    stored. `fraction_bits` is f where a unit of its sums is 2^-f, in fixed point: see `_exponent`.
    """

    key: str
    name: str
    is_depthwise: bool
    has_weights: bool
    fraction_bits: int


def products(model: Model) -> Iterator[Product]:
    """Yields the products of the main graph, in its order."""
    scales, counts = TensorScales(model), Counter[str]()
    for node in model.nodes:
        op_type = _OPERATORS.get(node.op_type)
        if op_type is None or node.domain or node.scope.path:
            continue
        attributes = values.attributes_of(node.proto)
        yield Product(
            node.key,
            f"{op_type}_{counts[op_type]}",
            int(attributes.get("group", 1)) > 1,
            scales.stored_integers(node.inputs[1], node.scope) is not None,
            -sum(_exponent(scales, node, name) for name in node.inputs[:2]),
        )
        counts[op_type] += 1


def _exponent(scales: TensorScales, node: Node, name: str) -> int:
    """Returns e where a factor is integers times 2^e in fixed point.

    hls4ml keeps a scale within the type where all scales of a tensor are one power of two and its
    zero point is 0. It multiplies the sums by any other scale, so that the factors are integers.
    """
    scale = scales.of(name, node.scope)
    if scale is None or scale.zero != 0 or (scale.step != scale.step.flat[0]).any():
        return 0
    mantissa, exponent = math.frexp(float(scale.step.flat[0]))
    return exponent - 1 if mantissa == _OF_A_POWER else 0


_OF_A_POWER = 0.5
"""The mantissa of a power of two, which is 0.5 times 2^exponent."""


def finn_configuration(model: Model, widths: Mapping[str, int]) -> dict[str, Any]:
    """Returns `accDataType` for each node of `model` with a width, by the name that FINN gives it.

    FINN's accumulators are in two's complement, as `widths`, and hold the sum without its bias,
    which becomes part of the thresholds.
    """
    nodes, counts = dict[str, Any](), Counter[str]()
    for product in products(model):
        if not product.has_weights:
            continue
        unit = "VVAU" if product.is_depthwise else "MVAU"
        if product.key in widths:
            nodes[f"{unit}_{counts[unit]}"] = {"accDataType": f"INT{widths[product.key]}"}
        counts[unit] += 1
    return {"Defaults": {}, **nodes}


def hls4ml_configuration(model: Model, widths: Mapping[str, int]) -> dict[str, Any]:
    """Returns the type `accum` of each layer of `model` with a width, by the name in QONNX."""
    layers = {}
    for product in products(model):
        if product.key in widths:
            bits = widths[product.key]
            accum = f"fixed<{bits},{bits - product.fraction_bits}>"
            layers[product.name] = {"Precision": {"accum": accum}}
    return {"LayerName": layers}
