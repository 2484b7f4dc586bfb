"""The operators of each domain, and what computes their newest version: a part of the page."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import onnx
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

from tests.conformance.operators import Key, computed_by, node_of
from tracer.analyzers.cost import count as counting
from tracer.executors.registry import find_fallback
from tracer.graph import operators
from tracer.graph.model import canonical_domain
from tracer.interpreter.operators import standard

MICROSOFT = "com.microsoft"
DOMAINS = (
    "",
    "ai.onnx.ml",
    "ai.onnx.preview",
    "ai.onnx.preview.training",
    MICROSOFT,
    operators.QONNX_DOMAIN,
)

HERE, REFERENCE, GRAPH = "tracer", "onnx.reference", "its graph"
FALLBACK, NOTHING = "`--fallback ort`", "not at all"
WAYS = (HERE, REFERENCE, GRAPH, FALLBACK, NOTHING)

HEAD = f"""## By domain

The newest version of every operator of onnx {onnx.__version__}, also of those that it deprecates,
of onnxruntime {onnxruntime.__version__} (`{MICROSOFT}`, kernels for other processors than the CPU
included) and of QONNX. `--fallback ort` lets the CPU provider of onnxruntime compute what nothing
else does; a body cannot be handed to it. *Counted* is what has a rule in `analyzers/cost`: it tells
the work, or why the work depends on data.

| domain | operators | {" | ".join(WAYS)} | counted |
|{"---|" * (len(WAYS) + 3)}
"""


def section() -> str:
    """The tables of all domains."""
    rows, lists = [], []
    for domain in DOMAINS:
        by_way = _by_way(domain)
        names = [name for each in by_way.values() for name in each]
        counted = [name for name in names if counting.find_rule(domain, name) is not None]
        sizes = (len(names), *(len(by_way[way]) for way in WAYS), len(counted))
        rows.append(f"| `{domain or 'ai.onnx'}` | {' | '.join(map(str, sizes))} |\n")
        lists.append(_listed(domain, by_way, sorted(set(names) - set(counted))))
    return HEAD + "".join(rows) + "\n" + "\n".join(lists)


def _listed(domain: str, by_way: dict[str, list[str]], uncounted: list[str]) -> str:
    """The names of a domain; those of ONNX itself are in the table of versions."""
    groups = {way: by_way[way] for way in WAYS if domain or way != HERE} | {
        "not counted": uncounted
    }
    lines = [f"- {way}: {', '.join(names)}\n" for way, names in groups.items() if names]
    return f"### {domain or 'ai.onnx'}\n\n" + "".join(lines or ["All are computed here.\n"])


def _by_way(domain: str) -> dict[str, list[str]]:
    by_way: dict[str, list[str]] = defaultdict(list)
    for key in _newest(domain):
        by_way[_way(key)].append(key[1])
    return by_way


def _way(key: Key) -> str:
    domain, _, since = key
    way = computed_by(key)
    if way:
        return way
    is_whole = not _has_body(key) and not find_fallback("ort").refuses(
        node_of(key), {canonical_domain(domain): since}
    )
    return FALLBACK if is_whole else NOTHING


def _newest(domain: str) -> list[Key]:
    """The newest version of each operator of a domain that is defined, or computed here."""
    versions: dict[str, int] = {
        each.op_type: each.since for each in standard() if each.domain == domain
    }
    for schema in _schemas():
        if canonical_domain(schema.domain) == domain:
            since = schema.since_version
            versions[schema.name] = max(versions.get(schema.name, 0), since)
    return [(domain, name, since) for name, since in sorted(versions.items())]


def _has_body(key: Key) -> bool:
    graph = onnx.defs.OpSchema.AttrType.GRAPH
    return any(
        str(attribute.type).rpartition(".")[2] == graph.name
        for schema in _schemas()
        if (canonical_domain(schema.domain), schema.name) == key[:2]
        for attribute in schema.attributes.values()
    )


@cache
def _schemas() -> list[onnx.defs.OpSchema]:
    """Those of onnx, and of onnxruntime for its own domain."""
    own = [each for each in state.get_all_operator_schema() if each.domain == MICROSOFT]
    return [*onnx.defs.get_all_schemas(), *own]
