"""The table of a trace that was compared with a reference: errors of nodes and outputs."""

from collections.abc import Iterator

import pandas as pd

from tracer.analyzers.values import origins
from tracer.analyzers.views.text import cosine, digits, plural
from tracer.records.trace import Run, Trace
from tracer.support.tolerance import Tolerance
from tracer.text import printable


def has_agreement(nodes: pd.DataFrame) -> bool:
    """Whether the values of any node of a node table were compared."""
    return "difference_max" in nodes and bool(nodes["difference_max"].notna().any())


def worst_first(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with errors: the largest errors of a node's own first, then the largest errors."""
    compared = rows[rows["difference_max"].notna()]
    return compared.sort_values(
        ["difference_own", "difference_max"], ascending=False, kind="stable", na_position="last"
    )


def outputs(trace: Trace, nodes: pd.DataFrame) -> Iterator[str]:
    """A line for each output of the model that a compared node computes."""
    topology = trace.model.topology
    if topology is None:
        return
    columns = ["difference_max", "difference_rms", "difference_cosine"]
    compared = nodes.drop_duplicates("node").set_index("node")[columns].dropna(subset=columns[:1])
    errors = dict(zip(compared.index, compared.to_numpy(float).tolist(), strict=True))
    for name, maker in topology.outputs.items():
        key = "" if maker is None else topology.nodes[maker]
        if key in errors:
            largest, rms, angle = errors[key]
            yield (
                f"output {printable(name)}: error at most {digits(largest)} of the largest value, "
                f"RMS error {digits(rms)}, cosine {cosine(angle)}"
            )


def verdict(run: Run, tolerance: Tolerance) -> tuple[str, bool]:
    """Returns in words whether a run agrees with its reference, and whether it does.

    A node disagrees if it is out of tolerance on the values of the reference. Rounding that adds up
    from node to node is no disagreement, unless a relative tolerance was asked for.
    """
    op_types = {kernel.node: kernel.op_type for kernel in run.kernels}
    wrong = origins(run.values)
    beyond = [each for each in run.values if each.difference and each.difference.fault]
    if wrong:
        which = f"'{printable(wrong[0].node)}' ({op_types[wrong[0].node]})"
        fault = wrong[0].own.fault if wrong[0].own else ""
        others = "" if len(wrong) == 1 else f" (and {len(wrong) - 1:,} more)"
        return f"{which} is out of tolerance on the values of the reference: {fault}{others}", False
    if beyond:
        first = beyond[0]
        fault = first.difference.fault if first.difference else ""
        return (
            "every node is within tolerance on the values of the reference; rounding adds up to "
            f"more in {plural(len(beyond), 'node')}, first in '{printable(first.node)}' "
            f"({op_types[first.node]}): {fault}"
        ), tolerance.relative is None
    return "every node is within tolerance", True


def totals(nodes: pd.DataFrame) -> str:
    """How many nodes were compared, and how many are equal."""
    compared = nodes[nodes["difference_max"].notna()]
    same = int((compared["difference_max"] == 0).sum())
    exact = int((compared["difference_own"] == 0).sum())
    return (
        f"{plural(len(compared), 'node')} compared: {same:,} equal the reference, {exact:,} do on "
        "its values (own error)"
    )
