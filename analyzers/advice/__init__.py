"""Gives advice on a profile, in words: rules examine evidence. Modules with `RULES` are found."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import pandas as pd

from tracer.analyzers.grouping import by_node
from tracer.analyzers.roofline import INT8, arithmetic
from tracer.analyzers.timing import wall
from tracer.analyzers.views.text import duration
from tracer.graph.stored_weights import LISTED_WEIGHTS
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
_MOST_CACHED = 1152 << 20
"""Bytes of the largest last-level cache of a processor (EPYC 9684X). What a run reads beyond them
comes from main memory, on any machine; less may be in a cache, which the roof of memory is not of.
"""
_LEAST_CACHED = 4 << 20
"""Bytes of a last-level cache whose size is not known."""
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

    Rows whose time is only a bound are not among them by default: nothing can be built on one of
    these. They are `bounds`, of which the sum is known: it is what the others leave of `nodes_us`,
    the time of all rows.
    `sums` are the folded rows whose sums were counted and whose energy is known, with
    `energy_share`, their share of the energy.
    `peaks` are None if other programs ran while they were measured: peaks that are too low make
    kernels seem near the roof. Those of a card are left out: rules are about processors.
    `has_listed_weights` says whether a feed may replace weights, which onnxruntime then does not
    fuse.
    """

    rows: pd.DataFrame
    bounds: pd.DataFrame
    nodes_us: float
    sums: pd.DataFrame
    run: Run
    peaks: Peaks | None
    optimization: str
    model: str
    cpus: int
    flags: frozenset[str]
    has_listed_weights: bool

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
        is_bound = folded["time_us"].notna() & (folded["time_us_ci95_low"] == 0)
        known = (folded["time_us"] > 0) & (with_bounds | ~is_bound)
        rows = folded[known].sort_values("time_us", ascending=False, kind="stable")
        peaks = trace.environment.peaks_at(run.threads)
        reliable = peaks if peaks is not None and not (peaks.is_busy or peaks.card) else None
        machine = trace.environment
        return cls(
            rows, folded[is_bound], float(folded["time_us"].sum()), sums, run, reliable,
            run.optimization or "all", trace.model.name,
            machine.cpu_count, frozenset(machine.cpu_flags),
            any(LISTED_WEIGHTS in note for note in trace.notes),
        )  # fmt: skip

    @property
    def sure(self) -> pd.DataFrame:
        """The rows with a reliable time."""
        return self.rows[is_sure(self.rows)]

    @property
    def from_memory(self) -> pd.DataFrame:
        """The reliable rows that move more than the last-level cache holds.

        Others may seem near the roof of memory: a slow function on what is in a cache.
        """
        rows, cache = self.sure, (self.peaks.cache if self.peaks else 0) or _LEAST_CACHED
        moved = (rows["bytes_read"] + rows["bytes_written"]) / rows["calls"]
        return rows[(moved > cache) | ((rows["params"] > 0) & (self._read_bytes > cache))]

    def at_most_by_settings(self) -> float | None:
        """Returns the speed-up of a run if each product reached its roof, on all processors.

        Everything else may be fused into a product, or folded, and takes no time: so do rows whose
        time is only a bound, and what a run takes beside its nodes. What may be in a cache has no
        roof but that of arithmetic. None if the roofs are not known, or no time would be left.
        """
        of_all = min(1.0, (self.run.threads or self.cpus) / self.cpus) if self.cpus else 1.0
        return self._at_most(of_all, of_all, 1.0)

    def at_most_by_bits(self, bits: int) -> float | None:
        """Returns the same for products whose weights and activations are read in so many bits.

        Bytes are fewer, and as much faster is arithmetic, or by the int8 peak, on the threads of
        the run.
        """
        if self.peaks is None:
            return None
        faster = self.peaks.int8.rate / self.peaks.float32.rate if self.peaks.int8 else 1.0
        fewer = bits / _FLOAT_BITS
        return self._at_most(min(fewer, 1 / max(1.0, faster)), 1.0, fewer)

    def _at_most(self, computing: float, moving: float, fewer: float) -> float | None:
        """Returns the speed-up if products took their least time and nothing else took any.

        The times of arithmetic and of each byte are multiplied by `computing` and `moving`, and
        the bytes by `fewer`.
        """
        if self.peaks is None:
            return None
        read = self._read_bytes
        beyond = max(0.0, fewer * read - _MOST_CACHED) / max(1, read)
        products = self.rows[self.rows["macs"].fillna(0) > 0]
        integer = [k.name for k in self.run.kernels if arithmetic(k) == INT8]
        int8 = self.peaks.int8 or self.peaks.float32
        peak = pd.Series(self.peaks.float32.rate, products.index)
        peak = peak.mask(products["kernels"].isin(integer), int8.rate)
        by_arithmetic = 1e9 * products["gflops_per_s"].fillna(0).astype(float) / peak
        by_memory = beyond * products["roof_fraction"].fillna(0).astype(float)
        least = (moving * by_memory).clip(lower=computing * by_arithmetic, upper=1)
        least_us = float((products["time_us"] * least).sum())
        run_us = max(wall(self.run)["mean"], self.nodes_us)
        return run_us / least_us if least_us > _LEAST_LEFT * run_us else None

    def least_us(self, rows: pd.DataFrame) -> float | None:
        """Returns the time that the work of `rows` needs by the roofs; None if one is not known."""
        if self.peaks is None:
            return None
        computing = rows["flops"] / self.peaks.float32.rate
        moving = (rows["bytes_read"] + rows["bytes_written"]) / self.peaks.memory.rate
        least = pd.concat([computing, moving], axis=1).max(axis=1)
        return None if least.isna().any() else 1e6 * float(least.sum())

    @property
    def _read_bytes(self) -> int:
        """The bytes of the weights and inputs that a run reads, each once."""
        made = {name for kernel in self.run.kernels for name in kernel.outputs}
        read = {
            name: kind.nbytes or 0
            for kernel in self.run.kernels
            for name, kind in zip(kernel.inputs, kernel.input_types, strict=False)
        }
        return sum(nbytes for name, nbytes in read.items() if name not in made)

    def kernels_of(self, op_type: str) -> list[Kernel]:
        """Returns the kernels of an operator."""
        return [kernel for kernel in self.run.kernels if kernel.op_type == op_type]

    def rows_of(self, kernels: Iterable[Kernel]) -> pd.DataFrame:
        """Returns the rows of kernels; none of a kernel that shares its row with others."""
        return self.rows[self.rows["kernels"].isin([kernel.name for kernel in kernels])]

    @property
    def all_rows(self) -> pd.DataFrame:
        """The rows for a sum: those too short for a time of their own come last.

        The errors of several such times cancel out.
        """
        bounds = self.bounds.loc[self.bounds.index.difference(self.rows.index)]
        return pd.concat([self.rows, bounds])

    def all_rows_of(self, kernels: Iterable[Kernel]) -> pd.DataFrame:
        """Returns the rows of kernels among `all_rows`."""
        rows = self.all_rows
        return rows[rows["kernels"].isin([kernel.name for kernel in kernels])]

    def share(self, rows: pd.DataFrame) -> float:
        """Returns the share that some rows have of the time of all; 0 if their sum may be 0.

        The errors of rows count as independent: most is noise of single kernels.
        """
        times = rows["time_us"]
        errors = (rows["time_us_ci95_high"] - times).clip(lower=0)
        total = float(times.sum())
        return total / self.nodes_us if total > math.hypot(*errors) else 0.0


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
            text += f"; by the roofline, the whole model runs at most {advice.at_most:.2g}x as fast"
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
