"""Give advice on a profile, in words. Each module here with `RULES` is found."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain

import pandas as pd

from tracer.analyzers.advice._evidence import Advice as Advice
from tracer.analyzers.advice._evidence import Evidence as Evidence
from tracer.analyzers.advice._evidence import is_sure as is_sure
from tracer.records.trace import Run, Trace
from tracer.text import brief

Rule = Callable[[Evidence], Advice | None]
"""Returns None if the figures do not support the advice."""

MOST = 5
"""Lines of advice: nobody reads more."""

_MOST_TOLD = 10
"""A greater speed-up is no estimate that a sentence should make."""
_RUNTIME = "onnxruntime"


def advise(
    trace: Trace, run: Run | None, nodes: pd.DataFrame, most: int | None = MOST
) -> tuple[Advice, ...]:
    """Returns the advice on one run, the largest share of its time or energy first.

    `nodes` are the rows of the run, and `most` the number of advices; None for all. The rules only
    know onnxruntime.
    """
    if run is None or run.executor != _RUNTIME or not nodes["time_us"].sum() > 0:
        return ()
    evidence = Evidence.of(trace, run, nodes)
    advices = [advice for rule in rules() if (advice := rule(evidence)) is not None]
    first = sorted(advices, key=lambda advice: -advice.weight)[:most]
    return tuple(_checked(advice, brief(trace.model.name)) for advice in first)


def _checked(advice: Advice, model: str) -> Advice:
    """Returns advice whose text names the command that would check it, and what it may bring."""
    if not advice.tune:
        return advice
    text = f"{advice.text}. tracer tune {model} --try {','.join(advice.tune)} measures it"
    if advice.at_most is not None and advice.at_most <= _MOST_TOLD:
        text += f"; the roofline leaves room for {advice.at_most:.2g}x at most"
    return replace(advice, text=text)


@cache
def rules() -> tuple[Rule, ...]:
    """Returns the rules of all modules, by name: that of the function is the rule's."""
    modules = (m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    found = (importlib.import_module(f"{__name__}.{module}").RULES for module in modules)
    return tuple(sorted(chain.from_iterable(found), key=lambda rule: rule.__name__))
