"""`tracer.compare` of three networks in torch, on the processor and on the card: times and values.

What the command writes as JSON, with TF32 as it is by default: in convolutions alone.
"""

import json
import os
import time

from tests.card import parts

SECONDS: float = 45
NETWORKS = {
    "mnist": ("models/mnist/torch_net.py:MnistNet", (16, 1, 28, 28)),
    "resnet20": ("models/resnet_cifar/torch_net.py:ResNet20", (16, 3, 32, 32)),
    "transformer": ("models/transformer/torch_net.py:PatchTransformer", (16, 3, 32, 32)),
}


def measure(seconds):
    """Returns the values and the times of each network for which there is time."""
    os.environ["TRACER_IN_PROCESS"] = "1"  # sides need no process of their own
    begun, last = time.monotonic(), 0.0
    compared = {}
    for name, (network, shape) in NETWORKS.items():
        start = time.monotonic()
        if start - begun + last > seconds:
            compared[name] = {"skipped": "no time is left"}
            continue
        compared[name] = {}
        for part, by in (("values", "model"), ("times", "layer")):
            compared[name][part] = parts.attempt(comparison, network, shape, by)
            parts.keep(compared)
        last = time.monotonic() - start
    return compared


def comparison(network, shape, by, sessions=2):
    """Returns what `tracer compare NET@torch NET@torch:cuda --json` writes.

    By model it has values and whole runs, by layer the times of layers.
    """
    from tracer.analyzers.views import render
    from tracer.api.compare import SideSettings, compare
    from tracer.support.tolerance import Tolerance

    begun = time.monotonic()
    settings = SideSettings(input_shape=shape, sessions=sessions, precision=1.0)
    sides = [f"{network}@torch", f"{network}@torch:{parts.device()}"]
    tolerance = Tolerance() if by == "model" else None
    result = compare(sides, settings=settings, by=by, tolerance=tolerance, in_process=True)
    seconds = time.monotonic() - begun
    return {"passed": result.passed, "seconds": seconds, **json.loads(render(result, "json"))}
