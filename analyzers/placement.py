"""Which provider of onnxruntime ran which nodes, in how many kernels, and for how long."""

from collections import Counter
from dataclasses import dataclass

import pandas as pd

from tracer.records import environment
from tracer.records.environment import COPIES
from tracer.records.trace import Run

_SEPARATOR = "; "


@dataclass(frozen=True, slots=True)
class Placement:
    """What one provider ran.

    `nodes` counts the operators of the model's nodes. `subgraphs` are the numbers of nodes of the
    kernels that it compiled, the largest first; 0 stands for one whose nodes are not known.
    `copies` counts the kernels of `COPIES`; `copies_us` is their time, `time_us` the time of the
    others. `device_us` is the time on the device, of a provider that only queues its kernels; None
    where it was not recorded.
    """

    provider: str
    nodes: Counter[str]
    subgraphs: tuple[int, ...]
    copies: Counter[str]
    time_us: float
    copies_us: float
    device_us: float | None = None


def has_providers(run: Run) -> bool:
    """Returns whether onnxruntime ran kernels on a provider other than the CPU."""
    names = {kernel.provider for kernel in run.kernels} - {""}
    return run.executor == "onnxruntime" and any(not environment.is_cpu(name) for name in names)


def placements(run: Run, nodes: pd.DataFrame) -> tuple[Placement, ...]:
    """Returns what each provider of `run` ran, the longest first; `nodes` are the run's rows."""
    of_name = {kernel.name: kernel for kernel in run.kernels}
    rows = nodes[nodes["kernels"].notna()]
    kernels = [of_name.get(text.split(_SEPARATOR)[0]) for text in rows["kernels"]]
    rows = rows.assign(
        provider=[kernel.provider if kernel else "" for kernel in kernels],
        copies=[kernel is not None and kernel.op_type in COPIES for kernel in kernels],
    )
    found = []
    for name, held in rows.groupby("provider", sort=False):
        if not name:
            continue
        own = [kernel for kernel in run.kernels if kernel.provider == name]
        copying = held[held["copies"]]
        modelled = held[held["index"].notna() & ~held["copies"]]
        sizes = modelled["kernels"].value_counts()
        compiled = [kernel.name for kernel in own if kernel.is_compiled]
        on_device = [
            k.device_us for k in own if k.op_type not in COPIES and k.device_us is not None
        ]
        placement = Placement(
            provider=str(name),
            nodes=Counter(modelled["op_type"].astype(str)),
            subgraphs=tuple(sorted((int(sizes.get(n, 0)) for n in compiled), reverse=True)),
            copies=Counter(kernel.op_type for kernel in own if kernel.op_type in COPIES),
            time_us=float(held["time_us"].sum() - copying["time_us"].sum()),
            copies_us=float(copying["time_us"].sum()),
            device_us=sum(on_device) if on_device else None,
        )
        found.append(placement)
    return tuple(sorted(found, key=lambda each: -each.time_us))


def unplaced(nodes: pd.DataFrame) -> int:
    """Returns how many nodes of the model no kernel has."""
    return int((nodes["index"].notna() & nodes["kernels"].isna()).sum())
