"""Peaks of the card beside its maker's figures, and the rooflines of three networks under them."""

import time

import numpy as np
import torch

from tests.card import parts

SECONDS: float = 25
NOMINAL = {
    "NVIDIA H100 80GB HBM3": {
        "float32": 67e12, "tf32": 495e12, "float16": 989e12, "bfloat16": 989e12,
        "float8_e4m3fn": 1979e12, "memory": 3.35e12,
    },
}  # fmt: skip
"""The maker's peaks of dense products, flop/s, and of the memory, bytes/s: for orientation."""
NETWORKS = {
    "resnet20": ("models/resnet_cifar/torch_net.py:ResNet20", 64),
    "transformer": ("models/transformer/torch_net.py:PatchTransformer", 256),
    "plain18": ("experiments/networks/family.py:plain18", 8),
}
"""Networks with their batch sizes: some rows are long enough to near a peak."""
COLUMNS = ("node", "op_type", "time_us", "macs", "bytes_read", "bytes_written", "gflops_per_s",
           "gbytes_per_s", "roof_fraction", "bound")  # fmt: skip


def measure(seconds):
    """Returns the peaks, each with its share of the maker's, and the rows of the networks."""
    begun = time.monotonic()
    name, peaks = measured_peaks()
    result = {"card": name, "seconds": time.monotonic() - begun, "peaks": listed(name, peaks)}
    parts.keep(result)
    for network, (target, batch) in NETWORKS.items():
        if time.monotonic() - begun > 0.8 * seconds:
            result[network] = {"skipped": "no time is left"}
            continue
        result[network] = parts.attempt(roofline, target, batch, peaks)
        parts.keep(result)
    return result


def measured_peaks():
    """Returns the device and its peaks; of the processor, those of small products."""
    from tracer.host import card

    if parts.device() == "cpu":
        return "cpu", card.measure(torch.device("cpu"), sizes=(256,), copied=64 << 20)
    return torch.cuda.get_device_name(), card.peaks(anew=True)


def listed(name, peaks):
    """Returns each peak with what measured it and its share of the nominal one."""
    nominal = NOMINAL.get(name, {})
    every = {**peaks.arithmetic, "memory": peaks.memory}
    return {
        kind: {"rate": peak.rate, "by": peak.by}
        | ({"of_nominal": peak.rate / nominal[kind]} if kind in nominal else {})
        for kind, peak in every.items()
    }


def roofline(target, batch, peaks):
    """Returns the rows of a profile of `target` under these peaks, and the notes."""
    import tracer

    on_card = parts.device() == "cuda"
    trace = tracer.profile_framework(
        target, framework="torch", batch=batch if on_card else 1, device=parts.device(),
        runs=20 if on_card else 3, peaks=lambda threads: peaks, in_process=True,
    )  # fmt: skip
    rows = trace.nodes[list(COLUMNS)].astype(object)
    return {
        "batch": trace.runs[0].batch,
        "wall_us": np.median(trace.runs[0].wall_us),
        "rows": rows.where(rows.notna(), None).to_dict("records"),
        "notes": trace.notes,
    }
