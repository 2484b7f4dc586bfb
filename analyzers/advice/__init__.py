"""Gives advice on a profile, in words: rules examine evidence. Modules with `RULES` are found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import pandas as pd

from tracer.analyzers.grouping import by_node
from tracer.analyzers.roofline import ABOVE, CACHE, INT8, MEMORY, arithmetic
from tracer.analyzers.views.text import duration
from tracer.records.environment import Peaks
from tracer.records.trace import Kernel, Run, Trace, plain_cells
from tracer.text import agree, brief

_SURE = 0.5
"""A time is reliable if the lower end of its interval is at least this share of it, and it is at
least this share of the time before the overhead is subtracted."""
_NAMED = 2
_LEAST_LEFT = 0.01
"""Share of the time that is left at least: a speed-up beyond 100 is no estimate."""
_FLOAT_BITS = 32
_LEAST_TOLD, _ROUNDED = 0.001, 0.1
_MICROS = 999.5
"""Times from here on are told in ms."""

MOST = 5
"""Lines of advice: nobody reads more."""
_MOST_TOLD = 10
"""A greater speed-up is no estimate that a sentence should make."""
_RUNTIME = "onnxruntime"
QUANTISING = frozenset(("dynamic_int8", "static_int8", "weights_4bit"))
"""Changes of `tracer tune` that it makes with `--allow quantize` alone."""

Figures = Mapping[str, float | str | None]


@dataclass(frozen=True, slots=True)
class Advice:
    """One line of advice: its rule, text, nodes and figures.

    `time_share` is the share of these nodes in the node time, `energy_share` in the energy. `tune`
    are changes of `tracer tune` that would check the advice, and `at_most` is the greatest speed-up
    that the roofline leaves room for; None if the roofs are not known.
    """

    rule: str
    text: str
    time_share: float
    nodes: tuple[str, ...]
    figures: Figures
    energy_share: float = 0.0
    tune: tuple[str, ...] = ()
    at_most: float | None = None

    @property
    def weight(self) -> float:
        """What the advice is about, as a share of the whole."""
        return max(self.time_share, self.energy_share)

    @property
    def tuning(self) -> tuple[str, ...]:
        """The options of `tracer tune` that check the advice."""
        allowed = () if QUANTISING.isdisjoint(self.tune) else ("--allow", "quantize")
        return ("--try", ",".join(self.tune), *allowed)


@dataclass(frozen=True)
class Evidence:
    """One run, and its `rows` with a time, folded by `tracer.analyzers.grouping.by_node`.

    Rows whose time is only a bound are not among them by default: nothing can be built on these.
    `sums` are the folded rows whose sums were counted and whose energy is known, with
    `energy_share`, their share of the energy.
    `peaks` are None if other programs ran while they were measured: peaks that are too low make
    kernels seem near the roof. Those of a card are left out: rules are about processors.
    """

    rows: pd.DataFrame
    sums: pd.DataFrame
    run: Run
    peaks: Peaks | None
    optimization: str
    model: str
    cpus: int
    flags: frozenset[str]

    @classmethod
    def of(cls, trace: Trace, run: Run, nodes: pd.DataFrame, with_bounds: bool = False) -> Evidence:
        """Returns the evidence of one run of a trace; `nodes` are its rows.

        `with_bounds` keeps rows whose time is only a bound, for what is measured before it is told.
        """
        folded = by_node(nodes)
        # plain floats and names are two blocks of memory: rules choose rows dozens of times
        folded = pd.DataFrame({name: plain_cells(folded[name]) for name in folded})
        sums = folded.assign(energy_share=folded["energy"] / folded["energy"].sum())
        sums = sums[sums["outputs"].notna() & sums["energy_share"].notna()]
        known = (folded["time_us"] > 0) & (with_bounds | (folded["time_us_ci95_low"] != 0))
        rows = folded[known].sort_values("time_us", ascending=False, kind="stable")
        peaks = trace.environment.peaks_at(run.threads)
        reliable = peaks if peaks is not None and not (peaks.is_busy or peaks.card) else None
        machine = trace.environment
        return cls(
            rows, sums, run, reliable, run.optimization or "all", trace.model.name,
            machine.cpu_count, frozenset(machine.cpu_flags),
        )  # fmt: skip

    @property
    def sure(self) -> pd.DataFrame:
        """The rows with a reliable time."""
        return self.rows[is_sure(self.rows)]

    def at_most_by_settings(self) -> float | None:
        """Returns the speed-up if each product reached its roof, with a thread for each core.

        Everything else may be fused into a product, or folded, and takes no time. Weights and
        tensors that are in a cache have no roof but that of arithmetic. None if the roofs are not
        known, or no time would be left.
        """
        return self._at_most(self._least * self._of_all_cores)

    def at_most_by_bits(self, bits: int) -> float | None:
        """Returns the same for products whose weights and activations are read in so many bits.

        Bytes are fewer, and integers are multiplied at the int8 peak, on the threads of the run.
        """
        if self.peaks is None:
            return None
        faster = self.peaks.int8.rate / self.peaks.float32.rate if self.peaks.int8 else 1.0
        return self._at_most(self._least * min(bits / _FLOAT_BITS, 1 / max(1.0, faster)))

    @property
    def _of_all_cores(self) -> float:
        """Time with a thread for each processor ÷ the time with the threads of the run."""
        return min(1.0, (self.run.threads or self.cpus) / self.cpus) if self.cpus else 1.0

    @property
    def _least(self) -> pd.Series[float]:
        """Least time of each row ÷ its time: of products by the roofs, of others none."""
        products = self.rows["macs"].fillna(0) > 0
        in_cache = self.rows["bound"].isin((MEMORY, CACHE)) & (self.rows["roof_fraction"] > ABOVE)
        return self._by_roof.where(~in_cache, self._by_arithmetic).clip(upper=1).where(products, 0)

    @property
    def _by_roof(self) -> pd.Series[float]:
        return self.rows["roof_fraction"].fillna(0).astype(float)

    @property
    def _by_arithmetic(self) -> pd.Series[float]:
        """Time of the operations at the peak of their type ÷ the time."""
        if self.peaks is None:
            return self._by_roof
        integer = [k.name for k in self.run.kernels if arithmetic(k) == INT8]
        int8 = self.peaks.int8 or self.peaks.float32
        peak = pd.Series(self.peaks.float32.rate, self.rows.index)
        peak = peak.mask(self.rows["kernels"].isin(integer), int8.rate)
        return 1e9 * self.rows["gflops_per_s"].fillna(0).astype(float) / peak

    def _at_most(self, least: pd.Series[float]) -> float | None:
        """Returns the speed-up if rows took the share `least` of their time."""
        if self.peaks is None:
            return None
        left = 1 - float((self.rows["time_share"] * (1 - least)).sum())
        return 1 / left if left > _LEAST_LEFT else None

    def kernels_of(self, op_type: str) -> list[Kernel]:
        """Returns the kernels of an operator."""
        return [kernel for kernel in self.run.kernels if kernel.op_type == op_type]

    def rows_of(self, kernels: Iterable[Kernel]) -> pd.DataFrame:
        """Returns the rows of kernels; none of a kernel that shares its row with others."""
        return self.rows[self.rows["kernels"].isin([kernel.name for kernel in kernels])]

    def row_of(self, kernel: Kernel) -> pd.DataFrame:
        """Returns the row of a kernel; empty if other kernels share the row."""
        return self.rows_of((kernel,))


Rule = Callable[[Evidence], Advice | None]
"""Returns None if the figures do not support the advice."""


def advise(
    trace: Trace, run: Run | None, nodes: pd.DataFrame, most: int | None = MOST
) -> tuple[Advice, ...]:
    """Returns the advice on one run, the largest share of its time or energy first.

    A text names the command that would check it, and what that may bring.
    `nodes` are the rows of the run, and `most` the number of advices; None for all. The rules only
    know onnxruntime.
    """
    if run is None or run.executor != _RUNTIME or not nodes["time_us"].sum() > 0:
        return ()
    told = []
    for advice in _by_weight(trace, run, nodes)[:most]:
        text = advice.text
        if advice.tune:
            text += f". tracer tune with {' '.join(advice.tuning)} measures it"
        if advice.tune and advice.at_most is not None and advice.at_most <= _MOST_TOLD:
            text += f"; the roofline leaves the model room for {advice.at_most:.2g}x at most"
        told.append(replace(advice, text=text))
    return tuple(told)


_latest: list[tuple[Trace, Run, pd.DataFrame, list[Advice]]] = []
"""The advice on the latest run: a page and the next step below it ask for the same."""


def _by_weight(trace: Trace, run: Run, nodes: pd.DataFrame) -> list[Advice]:
    for of_trace, of_run, rows, advices in _latest:
        if of_trace is trace and of_run is run and rows.equals(nodes):
            return advices
    evidence = Evidence.of(trace, run, nodes)
    advices = [advice for rule in rules() if (advice := rule(evidence)) is not None]
    advices.sort(key=lambda advice: -advice.weight)
    _latest[:] = [(trace, run, nodes, advices)]
    return advices


@cache
def rules() -> tuple[Rule, ...]:
    """Returns the rules of all modules, by name: that of the function is the rule's."""
    modules = pkgutil.iter_modules(__path__)
    found = (importlib.import_module(f"{__name__}.{module.name}").RULES for module in modules)
    return tuple(sorted(chain.from_iterable(found), key=lambda rule: rule.__name__))


def is_sure(rows: pd.DataFrame) -> pd.Series[bool]:
    """Returns whether the time of each row is reliable: well above its uncertainty."""
    narrow = rows["time_us_ci95_low"] >= _SURE * rows["time_us"]
    return narrow & (rows["time_us"] >= _SURE * rows["time_us_raw"])


def named(rows: pd.DataFrame) -> str:
    """`conv1, conv2 and 3 more`."""
    names = [brief(str(name)) for name in rows["node"]]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def taking(rows: pd.DataFrame) -> str:
    """`conv1 takes`, `conv1, conv2 and 3 more take`."""
    return f"{named(rows)} {agree(len(rows), 'takes', 'take')}"


def mean(rows: pd.DataFrame, column: str) -> float:
    """Returns the mean of a rate, weighted by time."""
    return float((rows[column] * rows["time_us"]).sum() / rows["time_us"].sum())


def known_share(value: float) -> float:
    """Returns a share; 0 where nothing was timed."""
    return 0.0 if pd.isna(value) else float(value)


def percentage(value: float) -> str:
    """`41%`, `0.3%`, `less than 0.1%`."""
    if 0 < value < _LEAST_TOLD:
        return f"less than {_LEAST_TOLD:.1%}"
    return f"{value:.1%}" if value < _ROUNDED else f"{value:.0%}"


def span(time: float) -> str:
    """`3.86 µs`, `386 µs`, `3.86 ms`: a time with three digits."""
    return duration(time) if time >= _MICROS else f"{time:.3g} µs"


def keys(rows: pd.DataFrame) -> tuple[str, ...]:
    """Returns the nodes of some rows."""
    return tuple(map(str, rows["node"]))
