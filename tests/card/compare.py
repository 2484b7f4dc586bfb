"""`tracer.compare` of three networks in torch, on the processor and on the card: times and values.

What the command writes as JSON, for each network, with TF32 as it is by default, and the larger
errors where matrix products use it as well.
"""

import json
import time

from tests.card import parts

SECONDS: float = 30
NETWORKS = {
    "mnist": ("models/mnist/torch_net.py:MnistNet", (16, 1, 28, 28)),
    "transformer": ("models/transformer/torch_net.py:PatchTransformer", (16, 3, 32, 32)),
    "resnet20": ("models/resnet_cifar/torch_net.py:ResNet20", (16, 3, 32, 32)),
}


def measure(seconds):
    """Returns the comparison of each network for which there is time."""
    begun, longest = time.monotonic(), 0.0
    compared = {}
    for name, (network, shape) in NETWORKS.items():
        start = time.monotonic()
        if start - begun + longest > seconds:
            compared[name] = {"skipped": "no time is left"}
            continue
        compared[name] = parts.attempt(comparison, network, shape)
        longest = max(longest, time.monotonic() - start)
        parts.keep(compared)
    return compared


def comparison(network, shape, sessions=4):
    """Returns what `tracer compare NET@torch NET@torch:cuda --json` writes."""
    from tracer.analyzers.views import render
    from tracer.api.compare import SideSettings, compare
    from tracer.support.tolerance import Tolerance

    settings = SideSettings(input_shape=shape, sessions=sessions, precision=1.0)
    sides = [f"{network}@torch", f"{network}@torch:{parts.device()}"]
    result = compare(sides, settings=settings, tolerance=Tolerance(), in_process=True)
    return {"passed": result.passed, **json.loads(render(result, "json"))}
