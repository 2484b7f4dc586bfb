"""Advice on kernels: near the roofs of the machine, idle cores, and kernels that may be spared."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from tracer.analyzers.advice import Advice, Evidence, keys, mean, named, percentage, span, taking
from tracer.analyzers.roofline import ABOVE, COMPUTE, INT8, MEMORY, arithmetic
from tracer.analyzers.views.text import quantity, si
from tracer.graph.operators import CONVERSIONS
from tracer.records.environment import COPIES
from tracer.records.trace import Kernel
from tracer.text import PREFILL, agree, brief, plural

_LEAST = {
    "compute_bound": 0.3, "memory_bound": 0.05, "slow_kernel": 0.1, "small_kernels": 0.25,
    "few_threads": 0.3, "unfused_activation": 0.02, "unfused_attention": 0.02,
    "computed_shapes": 0.02, "conversions": 0.05, "inserted_casts": 0.01, "layout_reorders": 0.02,
    "copied_cache": 0.05, "unpruned_head": 0.02,
}  # fmt: skip
"""Share of the time from which a rule speaks."""
_FUSED_INTO_CONV = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"})
_FUSED_INTO_GEMM = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu"})
_FUSIBLE = {"Conv": _FUSED_INTO_CONV, "Gemm": _FUSED_INTO_GEMM}
"""Activations that onnxruntime fuses from `extended` on, by operator (conv_activation_fusion.cc and
gemm_activation_fusion.cc under onnxruntime/core/optimizer)."""
_ACTIVATIONS = _FUSED_INTO_CONV | _FUSED_INTO_GEMM
_FOLDED = "BatchNormalization"
"""A Conv always absorbs it."""
_CARRIED = "activation"
"""The attribute of a kernel that already includes an activation."""
_FUSING = ("extended", "all")
_FUSED_ATTENTION = ("Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention")
_ATTENTION_PRODUCTS = frozenset({"FusedMatMul", "MatMul"})
_BETWEEN = frozenset({"Add", "Cast", "Div", "IsNaN", "Mul", "Softmax", "Where"})
"""What may stand between the two products of an attention."""
_PASSING = _BETWEEN - {"Softmax"} | {"Dropout", "Identity", "Reshape", "Squeeze", "Transpose"}
"""What may stand between the Softmax and the second product."""
_SIZES = frozenset({"Shape", "Size"})
_CONVERSIONS = CONVERSIONS | {"Cast"}
_CPU = "CPUExecutionProvider"
_HALVES = ("float16", "bfloat16")
_MOST_NAMED = 3
_REORDERS = ("ReorderInput", "ReorderOutput")
_EXTENDING = "GroupQueryAttention"
"""The operator that extends a cache in place, where past and present are one buffer."""
_PRESENT = slice(1, 3)
"""Its outputs of keys and values."""
_HEADS = frozenset({"FusedMatMul", "Gemm", "MatMul", "MatMulNBits"})
_AFTER = frozenset({"Add", "Cast", "Div", "Mul", "Tanh"})  # a bias, a conversion, a scale, a cap


def unfused_activation(evidence: Evidence) -> Advice | None:
    """Returns advice if a separate activation is the only reader of a Conv or Gemm."""
    separate = list(_separate_activations(evidence))
    rows = evidence.rows_of(kernel for kernel, _ in separate)
    share = float(rows["time_share"].sum())
    if share < _LEAST["unfused_activation"]:
        return None
    moved = float((rows["gbytes_per_s"] * rows["time_us"]).sum()) * 1e3
    pair = Counter(operators for _, operators in separate).most_common(1)[0][0]
    is_fusing = evidence.optimization in _FUSING
    is_listed = evidence.has_listed_weights and _FOLDED in pair
    remedy = f"onnxruntime did not fuse {pair} here"
    if is_listed:  # no level folds them
        remedy = f"weights listed among the inputs keep {pair} apart"
    elif not is_fusing:
        remedy = f"--optimization all fuses {pair}, unless a tensor in between is an output"
    tune = (*["unlisted_weights"] * is_listed, *["optimization"] * (not (is_listed and is_fusing)))
    text = (
        f"unfused activations: {taking(rows)} {share:.1%} of the time as separate kernels and "
        f"{agree(len(rows), 'moves', 'move')} {moved / 1e6:.3g} MB that a fused kernel does not "
        f"move: {remedy}"
    )
    return Advice(
        "unfused_activation", text, share, keys(rows), {"bytes": moved, "pair": pair},
        tune=tune, at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def _separate_activations(evidence: Evidence) -> Iterator[tuple[Kernel, str]]:
    """Yields each separate activation, and the operators that it could be fused with."""
    kernels = evidence.run.kernels
    makers = {(k.scope, name): k for k in kernels for name in k.outputs}
    readers = Counter((k.scope, name) for k in kernels for name in set(k.inputs))
    for kernel in kernels:
        if kernel.op_type not in _ACTIVATIONS:
            continue
        chain = [kernel]
        while chain[-1] is kernel or chain[-1].op_type == _FOLDED:
            source = (kernel.scope, chain[-1].inputs[0] if chain[-1].inputs else "")
            if source not in makers or readers[source] != 1:
                break
            chain.append(makers[source])
        maker = chain[-1]
        if kernel.op_type in _FUSIBLE.get(maker.op_type, ()) and _CARRIED not in maker.attributes:
            yield kernel, " + ".join(part.op_type for part in reversed(chain))


def unfused_attention(evidence: Evidence) -> Advice | None:
    """Returns advice if a Softmax between products is not part of a fused kernel."""
    makers = {(k.scope, name): k for k in evidence.run.kernels for name in k.outputs}
    chains = [_attention_chain(each, makers) for each in softmax_of_attention(evidence.run.kernels)]
    kernels = {kernel.name: kernel for chain in chains for kernel in chain}
    rows = evidence.all_rows_of(kernels.values())
    share, time = evidence.share(rows), float(rows["time_us"].sum())
    if share < _LEAST["unfused_attention"]:
        return None
    count = sum(bool(chain) for chain in chains)
    text = (
        f"unfused attention: {taking(rows)} {share:.0%} of the time ({span(time)}) in "
        f"{count} Softmax after products, which onnxruntime has kernels for that hold them all"
    )
    return Advice(
        "unfused_attention", text, share, keys(rows), {"time_us": time, "softmax": float(count)},
        tune=("fusions",), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def softmax_of_attention(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Returns each Softmax that a product reads, if none is fused to attention.

    The last Softmax of a classifier is none.
    """
    if any(kernel.op_type in _FUSED_ATTENTION for kernel in kernels):
        return []
    leading = set[tuple[str, str]]()  # tensors that a product reads, perhaps behind a move
    found = []
    for kernel in reversed(kernels):
        is_read = any((kernel.scope, name) in leading for name in kernel.outputs)
        if kernel.op_type == "Softmax" and is_read:
            found.append(kernel)
        if kernel.op_type in _ATTENTION_PRODUCTS or (is_read and kernel.op_type in _PASSING):
            leading.update((kernel.scope, name) for name in kernel.inputs)
    return found[::-1]


def _attention_chain(softmax: Kernel, makers: Mapping[tuple[str, str], Kernel]) -> list[Kernel]:
    """Returns the kernels from a product to the Softmax behind it; none without a product."""
    chain, waiting = dict[str, Kernel](), [softmax]
    while waiting:
        kernel = waiting.pop()
        if kernel.name in chain:
            continue
        chain[kernel.name] = kernel
        if kernel.op_type in _BETWEEN:
            before = (makers.get((kernel.scope, name)) for name in kernel.inputs)
            waiting += [m for m in before if m and m.op_type in _BETWEEN | _ATTENTION_PRODUCTS]
    found = list(chain.values())
    return found if any(kernel.op_type in _ATTENTION_PRODUCTS for kernel in found) else []


def computed_shapes(evidence: Evidence) -> Advice | None:
    """Returns advice if integers that follow from a Shape are computed in a measurable time."""
    computed = set[tuple[str, str]]()
    kernels = []
    for kernel in evidence.run.kernels:
        small = all(kind.dtype == "int64" for kind in kernel.output_types)
        reads = any((kernel.scope, name) in computed for name in kernel.inputs)
        if kernel.op_type in _SIZES or (small and reads):
            kernels.append(kernel)
            computed.update((kernel.scope, name) for name in kernel.outputs)
    rows = evidence.all_rows_of(kernels)
    share, time = evidence.share(rows), float(rows["time_us"].sum())
    if share < _LEAST["computed_shapes"]:
        return None
    text = (
        f"computed shapes: {taking(rows)} {percentage(share)} of the time ({span(time)}) to "
        "compute sizes of tensors, which are constants where the inputs have one size"
    )
    return Advice(
        "computed_shapes", text, share, keys(rows), {"time_us": time},
        tune=("fixed_dimensions", "folding"), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def conversions(evidence: Evidence) -> Advice | None:
    """Returns advice if separate conversions take a measurable time."""
    rows = evidence.all_rows[evidence.all_rows["op_type"].isin(_CONVERSIONS)]
    rows = rows[rows["index"].notna()]  # of casts that the runtime inserted, see inserted_casts
    share = evidence.share(rows)
    if share < _LEAST["conversions"]:
        return None
    time = float(rows["time_us"].sum())
    text = (
        f"conversions: {taking(rows)} {share:.1%} of the time ({span(time)}); adjacent nodes "
        "of one type need no conversion"
    )
    return Advice("conversions", text, share, keys(rows), {"time_us": time})


def inserted_casts(evidence: Evidence) -> Advice | None:
    """Returns advice if casts that are no nodes of the model take a measurable time."""
    casts = [
        kernel
        for kernel in evidence.kernels_of("Cast")
        if kernel.node is None and kernel.provider == _CPU and _halves(kernel)
    ]
    rows = evidence.all_rows_of(casts)
    share, time = evidence.share(rows), float(rows["time_us"].sum())
    if share < _LEAST["inserted_casts"]:
        return None
    dtypes = sorted({dtype for kernel in casts for dtype in _halves(kernel)})
    text = (
        f"{' and '.join(dtypes)} on the CPU: {plural(len(rows), 'cast')} that onnxruntime "
        f"inserted {agree(len(rows), 'takes', 'take')} {percentage(share)} of the time "
        f"({span(time)}), because its CPU provider has no kernel "
        f"of this type for {_without_kernel(evidence.run.kernels, casts)}. Export the model in "
        "float32 for the CPU"
    )
    return Advice("inserted_casts", text, share, keys(rows), {"time_us": time, "casts": len(rows)})


def _halves(kernel: Kernel) -> tuple[str, ...]:
    types = (each.dtype for each in (*kernel.input_types, *kernel.output_types))
    return tuple(dtype for dtype in types if dtype in _HALVES)


def _without_kernel(kernels: Sequence[Kernel], casts: Sequence[Kernel]) -> str:
    """Returns the operators that a cast stands before or after, the most frequent first."""
    read = {name for cast in casts for name in cast.inputs}
    written = {name for cast in casts for name in cast.outputs}
    others = [
        kernel.op_type
        for kernel in kernels
        if kernel not in casts
        and any(dtype not in _HALVES for dtype in (each.dtype for each in kernel.input_types))
        and (written.intersection(kernel.inputs) or read.intersection(kernel.outputs))
    ]
    names = sorted(set(others), key=lambda name: (-others.count(name), name))
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def layout_reorders(evidence: Evidence) -> Advice | None:
    """Returns advice if reorders to and from the blocked layout take a measurable time."""
    rows = evidence.all_rows[evidence.all_rows["op_type"].isin(_REORDERS)]
    share = evidence.share(rows)
    if share < _LEAST["layout_reorders"]:
        return None
    time = float(rows["time_us"].sum())
    kernels = {kernel.name: kernel for kernel in evidence.run.kernels}
    largest, where = kernels.get(str(rows.iloc[0]["kernels"])), ""
    if largest is not None:
        beside = [k for k in kernels.values() if k.scope == largest.scope]
        before = [k for k in beside if set(k.outputs) & set(largest.inputs)]
        after = [k for k in beside if set(k.inputs) & set(largest.outputs)]
        source = _described(before[0]) if before else "the input"
        target = _described(after[0]) if after else "the output"
        where = f"; the longest is between {source} and {target}" if before or after else ""
    text = (
        f"layout: {'1 reorder takes' if len(rows) == 1 else f'{len(rows):,} reorders take'} "
        f"{share:.1%} of the time ({span(time)}), because some operators "
        f"between convolutions have no kernel for the blocked layout{where}"
    )
    return Advice(
        "layout_reorders", text, share, keys(rows), {"time_us": time},
        tune=("layout",), at_most=evidence.at_most_by_settings(),
    )  # fmt: skip


def _described(kernel: Kernel) -> str:
    return f"{brief(kernel.name)} ({brief(kernel.op_type)})"


def other_provider(evidence: Evidence) -> Advice | None:
    """Returns advice if the runtime copies tensors between devices, for kernels on the CPU."""
    copies = [k for name in COPIES for k in evidence.kernels_of(name)]
    rows = evidence.rows_of(copies)
    on_cpu = [k.op_type for k in evidence.run.kernels if k.provider == _CPU and k not in copies]
    if rows.empty or not on_cpu:
        return None
    share, time = float(rows["time_share"].sum()), float(rows["time_us"].sum())
    names = [name for name, _ in Counter(on_cpu).most_common(_MOST_NAMED)]
    text = (
        f"other provider: {plural(len(on_cpu), 'kernel')} ({', '.join(names)}) ran on the "
        f"{_CPU}, and {len(copies):,} {agree(len(copies), 'copy', 'copies')} between it and the "
        f"device take {percentage(share)} of the time ({span(time)}). Replace these "
        "operators, or their types, by ones that the provider has"
    )
    figures = {"time_us": time, "copies": len(copies), "kernels": len(on_cpu)}
    return Advice("other_provider", text, share, keys(rows), figures)


def copied_cache(evidence: Evidence) -> Advice | None:
    """Returns advice if the present is longer than the past, so that the past is copied into it."""
    copying = [kernel for kernel in evidence.kernels_of(_EXTENDING) if _copied_bytes(kernel)]
    rows = evidence.rows_of(copying)
    share, moved = float(rows["time_share"].sum()), sum(map(_copied_bytes, copying))
    if share < _LEAST["copied_cache"]:
        return None
    verbs = ("takes", "copies") if len(rows) == 1 else ("take", "copy")
    text = (
        f"cache copied: {named(rows)} {verbs[0]} {share:.0%} of the time and {verbs[1]} "
        f"{quantity(moved, 'B')} of past keys and values into a longer present in every run. "
        "Bind past and present to one buffer of the greatest length, by IOBinding or "
        "past_present_share_buffer of onnxruntime-genai"
    )
    return Advice("copied_cache", text, share, keys(rows), {"bytes": moved})


def _copied_bytes(kernel: Kernel) -> int:
    """Returns the bytes of the past that a kernel copies into a present with more rows."""
    presents = kernel.output_types[_PRESENT]
    pasts = [each for each in kernel.input_types if each.shape and len(each.shape) == 4]
    longer = (
        past.nbytes or 0
        for past, present in zip(pasts, presents, strict=False)
        if past.concrete and present.concrete and past.concrete[2] < present.concrete[2]
    )
    return sum(longer)


def unpruned_head(evidence: Evidence) -> Advice | None:
    """Returns advice if a prefill multiplies more than the last token with the head."""
    heads = list(_heads(evidence)) if evidence.run.phase == PREFILL else []
    rows = evidence.rows_of(heads)
    if rows.empty:
        return None
    head, tokens = heads[0], _tokens(heads[0])
    spare = (tokens - 1) / tokens
    share, time = spare * float(rows["time_share"].sum()), spare * float(rows["time_us"].sum())
    macs = spare * float(rows["macs"].sum())
    if share < _LEAST["unpruned_head"]:
        return None
    text = (
        f"head not pruned: {brief(head.name)} computes the logits of all {tokens:,} tokens, and "
        f"generating needs those of the last: a Gather of the last token before it saves "
        f"{si(macs)} MACs and {span(time)} of the prefill ({share:.0%} of the time)"
    )
    figures = {"macs": macs, "time_us": time, "tokens": float(tokens)}
    return Advice("unpruned_head", text, share, keys(rows), figures)


def _heads(evidence: Evidence) -> Iterator[Kernel]:
    """Yields products of all tokens whose outputs the model returns."""
    kernels = [kernel for kernel in evidence.run.kernels if not kernel.scope]
    makers = {name: kernel for kernel in kernels for name in kernel.outputs}
    read = {name for kernel in kernels for name in kernel.inputs}
    for kernel in kernels:
        if read.intersection(kernel.outputs) or _tokens(kernel) < 2:
            continue
        maker: Kernel | None = kernel
        while maker is not None and maker.op_type in _AFTER:
            maker = next((makers[name] for name in maker.inputs if name in makers), None)
        if maker is not None and maker.op_type in _HEADS:
            yield maker


def _tokens(kernel: Kernel) -> int:
    """Returns the tokens of an output [batch, tokens, words]; 0 of another."""
    shape = kernel.output_types[0].concrete if kernel.output_types else None
    return shape[1] if shape is not None and len(shape) == 3 else 0


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
    rows = evidence.from_memory
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
    """Returns advice if many short kernels far below the roof take much of the time.

    Rows whose time is only a bound are short, too. Their sum is known, though no single time is.
    """
    rows, bounds = evidence.rows, evidence.bounds
    of_all = int(rows["calls"].sum() + bounds["calls"].sum())
    rows = rows[(rows["time_us"] / rows["calls"] < _SHORT_US) & (rows["roof_fraction"] < _FAR)]
    least_us = float((rows["roof_fraction"] * rows["time_us"]).sum())
    time_us = float(rows["time_us"].sum())
    bounds = bounds[bounds["time_us_ci95_high"] / bounds["calls"] < _SHORT_US]
    least_of_bounds, time_of_bounds = evidence.least_us(bounds), float(bounds["time_us"].sum())
    if least_of_bounds is not None and least_of_bounds < _FAR * time_of_bounds:
        rows = pd.concat([rows, bounds])
        least_us, time_us = least_us + least_of_bounds, time_us + time_of_bounds
    share, count = time_us / evidence.nodes_us, int(rows["calls"].sum())
    if count < _SEVERAL or share < _LEAST["small_kernels"]:
        return None
    needed = least_us / time_us
    text = (
        f"small kernels: {count:,} of {of_all:,} calls take less than {_SHORT_US:.0f} µs each, far "
        f"more than their work needs, and {share:.0%} of the time in total. The work needs "
        f"{needed:.1%} of it; the rest is the overhead of starting kernels. Use fewer, larger "
        "operators, or a larger batch"
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


RULES = (
    compute_bound, memory_bound, slow_kernel, small_kernels, few_threads,
    unfused_activation, unfused_attention, computed_shapes, conversions, inserted_casts,
    layout_reorders, other_provider, copied_cache, unpruned_head,
)  # fmt: skip
