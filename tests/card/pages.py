"""What the pages of two experiments tell of the card: MNIST at three batch sizes, 13 ResNets.

`python -m experiments.batches --card FILE` and `experiments.family` put it beside the CPU's times.
"""

import time

import numpy as np
import torch

from tests.card import parts

SECONDS: float = 60
MNIST = "models/mnist/torch_net.py:MnistNet"
BATCHES = (1, 16, 64)
KERNELS = 15
"""Operators inside others that are listed, those of the largest own time first."""
SIZES = {"cuda": {"batch": 32, "size": 224}, "cpu": {"batch": 2, "size": 32}}
RUNS = {"cuda": 100, "cpu": 3}
"""The original's sizes and runs of MNIST, and small ones for a trial on the processor."""


def measure(seconds):
    """Returns the operators of MNIST by batch size, and the figures of each ResNet."""
    begun = time.monotonic()
    result = {"device": parts.device(), "mnist": parts.attempt(mnist)}
    parts.keep(result)
    last, sizes = 0.0, SIZES[parts.device()]
    result["family"] = {**sizes, "networks": {}}
    for name in networks():
        start = time.monotonic()
        if start - begun + last > seconds:
            break
        figures = parts.attempt(resnet, name, sizes["batch"], sizes["size"])
        result["family"]["networks"][name] = figures
        last = time.monotonic() - start
        parts.keep(result)
    return result


def mnist():
    """Returns the operators of a run at each batch size, with the time of whole runs."""
    import tracer

    trace = tracer.profile_framework(
        MNIST, framework="torch", batch=BATCHES, runs=RUNS[parts.device()], warmup=20,
        device=parts.device(), in_process=True,
    )  # fmt: skip
    return {
        str(run.batch): {
            "wall_us": np.median(run.wall_us),
            "operators": _operators(trace.nodes[trace.nodes["batch"] == run.batch]),
            "kernels": _kernels(run),
            "notes": run.notes,
        }
        for run in trace.runs
    }


def networks():
    """Returns the names of the networks of the family, first those that the page cannot lack."""
    kinds, depths = ("plain", "bottleneck", "large"), (18, 34, 50, 101, 152)
    names = [f"{kind}{depth}" for kind in kinds for depth in depths]
    names = [name for name in names if name not in ("large18", "large34")]
    return ["plain18", "large152", *(n for n in names if n not in ("plain18", "large152"))]


def resnet(name, batch, size):
    """Returns the times of a forward pass in training mode, and of a training step."""
    from experiments.networks import family
    from tracer.analyzers.grouping import by_kernel
    from tracer.analyzers.table import backward_share
    from tracer.analyzers.timing import operation_table
    from tracer.executors import registry
    from tracer.executors.settings import EagerSettings

    with torch.device(parts.device()):
        model = getattr(family, name)(size=size)
    random = np.random.default_rng(0).standard_normal((batch, 3, size, size), np.float32)
    executor = registry.find_framework("torch")
    tables, profiles, runs = [], [], min(4, RUNS[parts.device()])
    for way in ({"train": True}, {"backward": True, "loss": "cross-entropy"}):
        settings = EagerSettings(runs=runs, warmup=3, device=parts.device(), **way)
        profiles.append(executor.profile(model, [random], settings, lambda *told: None))
        tables.append(operation_table(profiles[-1]))
    forward, step = (profile.run for profile in profiles)
    convolutions, backward = (
        table[table["op_type"] == op_type]
        for table, op_type in zip(tables, ("conv2d", "conv2d (backward)"), strict=True)
    )
    inside = by_kernel(step).set_index("op_type")["time_total_share"]
    return {
        "forward_us": np.median(forward.wall_us),
        "forward_quartiles_us": np.quantile(forward.wall_us, (0.25, 0.75)),
        "forward_rows_us": tables[0]["time_us"].sum(),
        "convolutions": convolutions["calls"].sum(),
        "convolution_share": convolutions["time_us"].sum() / tables[0]["time_us"].sum(),
        "step_us": np.median(step.wall_us),
        "step_rows_us": tables[1]["time_us"].sum(),
        "backward_share": backward_share(tables[1]),
        "backward_convolutions": backward["calls"].sum(),
        "backward_convolution_share": inside.get("aten::convolution_backward"),
        "kernels": _kernels(step),
        "notes": [*forward.notes, *step.notes],
    }


def _operators(nodes):
    from tracer.analyzers.grouping import by_op

    rows = by_op(nodes).sort_values("time_us", ascending=False)
    return _records(rows, ["op_type", "time_us", "time_share", "calls", "peak_bytes"])


def _kernels(run):
    from tracer.analyzers.grouping import by_kernel

    rows = by_kernel(run).sort_values("time_us", ascending=False).head(KERNELS)
    return _records(rows, ["op_type", "time_us", "time_us_total", "time_share", "time_total_share",
                           "time_us_per_call", "calls"])  # fmt: skip


def _records(rows, columns):
    rows = rows[[name for name in columns if name in rows]].astype(object)
    return rows.where(rows.notna(), None).to_dict("records")
