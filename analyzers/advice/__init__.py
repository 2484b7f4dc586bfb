"""What the figures of a profile advise, in words. A rule is one module here with a `rule`."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pandas as pd

from analyzers.advice._evidence import Advice, Evidence
from analyzers.advice._evidence import is_sure as is_sure
from tracer.records.trace import Run, Trace

Rule = Callable[[Evidence], Advice | None]
"""A rule: None where the figures do not support it."""

MOST = 5
"""Lines of advice that are given: more is not read."""

_RUNTIME = "onnxruntime"


def advise(trace: Trace, run: Run | None, nodes: pd.DataFrame) -> tuple[Advice, ...]:
    """What the rules say of one run, the largest share of the time first.

    `nodes` are the rows of the run. Rules know onnxruntime: of other executors nothing is said.
    """
    if run is None or run.executor != _RUNTIME or not nodes["time_us"].sum() > 0:
        return ()
    evidence = Evidence.of(trace, run, nodes)
    advices = [advice for rule in _rules() if (advice := rule(evidence)) is not None]
    return tuple(sorted(advices, key=lambda advice: -advice.time_share)[:MOST])


def _rules() -> Iterator[Rule]:
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        if not module.startswith("_"):
            yield importlib.import_module(f"{__name__}.{module}").rule
