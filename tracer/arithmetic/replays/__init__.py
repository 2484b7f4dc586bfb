"""How the kernels of each operator are revealed and replayed: one file for each family.

A module declares `REPLAYS`: replays by operator, which is `domain:type`, or the type alone in
ONNX's own domain. An operator without one is replayed by tracer's interpreter.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from tracer.arithmetic.replays import interpreter
from tracer.arithmetic.rule import Replay


def replay_of(domain: str, op_type: str) -> Replay:
    """Returns how kernels of an operator are revealed and replayed."""
    return _replays().get(f"{domain}:{op_type}" if domain else op_type, interpreter.REPLAY)


@cache
def _replays() -> Mapping[str, Replay]:
    found: dict[str, Replay] = {}
    for module in pkgutil.iter_modules(__path__):
        declared = importlib.import_module(f"{__name__}.{module.name}")
        found |= getattr(declared, "REPLAYS", {})
    return found
