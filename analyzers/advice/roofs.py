"""Advice on kernels near the roofs of the machine, or far from them, and on idle cores."""

from tracer.analyzers.advice import Advice, Evidence, keys, mean, taking
from tracer.analyzers.roofline import ABOVE, COMPUTE, INT8, MEMORY, arithmetic
from tracer.text import agree, brief

_LEAST = {
    "compute_bound": 0.3,
    "memory_bound": 0.05,
    "slow_kernel": 0.1,
    "small_kernels": 0.25,
    "few_threads": 0.3,
}
"""Share of the time from which a rule speaks."""
_NEAR_COMPUTE, _INT8_BITS = 0.6, 8
_WORTHWHILE = 1.3
"""Least ratio of the int8 peak to the float32 peak that is worth a mention."""
_NEAR_MEMORY = 0.5
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_FEWEST_BITS = 4
"""Bits of the narrowest weights that are tried."""
_SLOW_US, _FAR = 20.0, 0.25
"""Least time of a call, and the share of the roof below which a kernel is far from it."""
_SHORT_US, _SEVERAL = 10.0, 10
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SHARED_US = 50.0
"""Shorter kernels gain little from a second thread, which takes some µs to wake."""


def compute_bound(evidence: Evidence) -> Advice | None:
    """Returns advice if much of the time is spent near the compute roof."""
    peaks, rows = evidence.peaks, evidence.sure
    rows = rows[(rows["bound"] == COMPUTE) & rows["roof_fraction"].between(_NEAR_COMPUTE, ABOVE)]
    share = float(rows["time_share"].sum())
    if peaks is None or share < _LEAST["compute_bound"]:
        return None
    fraction, rate = mean(rows, "roof_fraction"), mean(rows, "gflops_per_s")
    figures = {"roof_fraction": fraction, "gflops_per_s": rate}
    text = (
        f"compute-bound: {taking(rows)} {share:.0%} of the time at {fraction:.0%} of the peak "
        f"({rate:.3g} GFLOP/s): only less work makes them faster"
    )
    tune: tuple[str, ...] = ("threads",)
    at_most = evidence.at_most_by_settings()
    gain = peaks.int8.rate / peaks.float32.rate if peaks.int8 else 0.0
    if gain >= _WORTHWHILE and not any(arithmetic(k) == INT8 for k in evidence.run.kernels):
        text += f", or 8-bit arithmetic (its peak is {gain:.1f} times as high here)"
        figures["int8_peak_ratio"] = gain
        tune, at_most = ("static_int8",), evidence.at_most_by_bits(_INT8_BITS)
    return Advice("compute_bound", text, share, keys(rows), figures, tune=tune, at_most=at_most)


def memory_bound(evidence: Evidence) -> Advice | None:
    """Returns advice if kernels reach half of the memory roof, and are not above it."""
    rows = evidence.sure
    rows = rows[(rows["bound"] == MEMORY) & rows["roof_fraction"].between(_NEAR_MEMORY, ABOVE)]
    share = float(rows["time_share"].sum())
    if evidence.peaks is None or share < _LEAST["memory_bound"]:
        return None
    rate, peak = mean(rows, "gbytes_per_s"), evidence.peaks.memory.rate / 1e9
    intensity = mean(rows, "gflops_per_s") / rate
    text = (
        f"memory-bound: {taking(rows)} {share:.0%} of the time and "
        f"{agree(len(rows), 'reaches', 'reach')} {rate:.3g} of the "
        f"{peak:.3g} GB/s of main memory, at {intensity:.2g} flop/B: only fewer bytes make them "
        "faster. Fuse them with a neighbour, or use smaller types"
    )
    figures = {"gbytes_per_s": rate, "peak_gbytes_per_s": peak, "intensity": intensity}
    products = rows["op_type"].isin(_WEIGHTED) & (rows["params"].fillna(0) > 0)
    tune, at_most = (
        (("weights_4bit", "static_int8"), evidence.at_most_by_bits(_FEWEST_BITS))
        if products.any()
        else (("optimization",), evidence.at_most_by_settings())
    )
    return Advice("memory_bound", text, share, keys(rows), figures, tune=tune, at_most=at_most)


def slow_kernel(evidence: Evidence) -> Advice | None:
    """Returns advice on the longest kernel that is far below its roof."""
    rows = evidence.sure
    each = rows["time_us"] / rows["calls"]
    rows = rows[(each >= _SLOW_US) & (rows["roof_fraction"] < _FAR)]
    rows = rows[rows["time_share"] >= _LEAST["slow_kernel"]].head(1)
    if rows.empty:
        return None
    row = rows.iloc[0]
    share, fraction, bound = float(row["time_share"]), float(row["roof_fraction"]), row["bound"]
    name = f"{brief(row['node'])} ({brief(row['op_type'])})"
    text = (
        f"far from the roof: {name} takes {share:.0%} of the time at {fraction:.1%} of the {bound} "
        f"roof ({row['gflops_per_s']:.3g} GFLOP/s, {row['gbytes_per_s']:.3g} GB/s): the kernel is "
        "the limit, not the machine. Try another form of the model with tracer compare"
    )
    figures = {name: float(row[name]) for name in ("roof_fraction", "gflops_per_s", "gbytes_per_s")}
    return Advice(
        "slow_kernel", text, share, keys(rows), figures,
        tune=("threads", "optimization", "layout"), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def small_kernels(evidence: Evidence) -> Advice | None:
    """Returns advice if many short kernels far below the roof take much of the time."""
    rows = evidence.rows
    of_all = int(rows["calls"].sum())
    each = rows["time_us"] / rows["calls"]
    rows = rows[(each < _SHORT_US) & (rows["roof_fraction"] < _FAR)]
    share, count = float(rows["time_share"].sum()), int(rows["calls"].sum())
    if count < _SEVERAL or share < _LEAST["small_kernels"]:
        return None
    needed = mean(rows, "roof_fraction")
    text = (
        f"small kernels: {count:,} of {of_all:,} calls take less than {_SHORT_US:.0f} µs each and "
        f"{share:.0%} of the time in total. The work needs {needed:.1%} of it; the rest is the "
        "overhead of starting kernels. Use fewer, larger operators, or a larger batch"
    )
    figures = {"calls": count, "of_calls": of_all, "roof_fraction": needed}
    return Advice(
        "small_kernels", text, share, keys(rows), figures,
        tune=("threads", "optimization"), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def few_threads(evidence: Evidence) -> Advice | None:
    """Returns advice if long products take much of the time, and cores are idle."""
    threads, cpus = evidence.run.threads, evidence.cpus
    if threads is None or threads >= cpus:
        return None
    rows = evidence.sure
    each = rows["time_us"] / rows["calls"]
    rows = rows[rows["op_type"].isin(_PRODUCTS) & (each >= _SHARED_US)]
    share = float(rows["time_share"].sum())
    if share < _LEAST["few_threads"]:
        return None
    text = (
        f"idle cores: {taking(rows)} {share:.0%} of the time in calls of {_SHARED_US:.0f} µs "
        f"or more, on {threads} of {cpus} processors"
    )
    figures = {"threads": float(threads), "cpus": float(cpus)}
    return Advice(
        "few_threads", text, share, keys(rows), figures, tune=("threads",), at_most=cpus / threads
    )


RULES = (compute_bound, memory_bound, slow_kernel, small_kernels, few_threads)
