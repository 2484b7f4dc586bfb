"""Settings of onnxruntime's sessions: a function for each that says why another may help."""

from collections.abc import Sequence

from tracer.executors.onnxruntime import feeding
from tracer.executors.settings import OPTIMIZATIONS
from tracer.records.trace import Kernel
from tracer.text import agree, plural
from tracer.tuning.changes import PRODUCTS, Findings, change, one_form
from tracer.tuning.setup import SPINNING

_ARENA = 1 << 20
"""Bytes of tensors from which the arena matters: it grows by powers of two from 1 MiB."""
_COPIED, _NAMES = 1 << 16, 8
"""Bytes of outputs whose copy takes more than a call of the bound session costs; and inputs and
outputs, whose names and types Python checks in each run."""
_FAST_MATH = "mlas.enable_gemm_fastmath_arm64_bfloat16"
_FAST_MATH_SHARE = 0.1
_TRANSFORMERS = ("NchwcTransformer", "NhwcTransformer")
_REORDERS = ("ReorderInput", "ReorderOutput")
_BEST = OPTIMIZATIONS[-1]
_PARALLEL_SHARE = 0.05
"""Share of the time that must lie beside the longest chain of kernels."""
_OTHER_PROVIDERS = frozenset({"CPUExecutionProvider", "AzureExecutionProvider"})
"""Providers that are not tried: the default, and one that calls a service elsewhere."""
_EVERY_CORE = 8
"""Cores up to which every number is tried; beyond, powers of two and all cores."""
_SHORT_US = 10.0


@change("arena", "exact", 61, one_form("off"), lambda setup, _: setup.with_session(arena=False))
def _why_arena(findings: Findings) -> str | None:
    """Memory is returned to the system at once, instead of an arena that keeps it."""
    if not findings.setup.session.arena:
        return None
    held = max((kernel.arena_bytes or 0 for kernel in findings.kernels), default=0)
    moved = sum(t.nbytes or 0 for k in findings.kernels for t in k.output_types)
    if max(held, moved) < _ARENA:
        return None
    return f"the arena keeps {held:,} bytes, of runs that write {moved:,} bytes"


@change("binding", "exact", 62, one_form("on"), lambda setup, _: setup.with_session(bound=True))
def _why_binding(findings: Findings) -> str | None:
    """Inputs and outputs are bound to memory that all runs share, instead of copied in each."""
    if findings.setup.session.bound:
        return None
    names = {value.name for value in findings.model.graph.output}
    kernels = [k for k in findings.kernels if not k.scope and names.intersection(k.outputs)]
    nbytes = sum(
        kind.nbytes or 0
        for kernel in kernels
        for name, kind in zip(kernel.outputs, kernel.output_types, strict=False)
        if name in names
    )
    count = len(names) + len(findings.model.inputs)
    if nbytes < _COPIED and count < _NAMES:
        return None
    return (
        f"{nbytes:,} bytes of outputs are copied in each run, and {plural(count, 'name')} checked"
    )


@change(
    "denormals", "rounding", 55, one_form("zero"),
    lambda setup, _: setup.with_session(flushes_denormals=True),
)  # fmt: skip
def _why_denormals(findings: Findings) -> str | None:
    """Numbers too small to be normal become 0: arithmetic on them is slow on many processors."""
    if findings.setup.session.flushes_denormals or not feeding.can_flush_denormals():
        return None
    if not findings.denormals:
        return None
    return f"{findings.denormals:,} numbers in weights and tensors are denormal"


@change(
    "fast_math", "float16", 56, one_form("bfloat16"),
    lambda setup, _: setup.with_entries({_FAST_MATH: "1"}),
)  # fmt: skip
def _why_fast_math(findings: Findings) -> str | None:
    """Products of floats in bfloat16, which some processors of ARM multiply faster."""
    share = findings.share(PRODUCTS)
    if findings.machine.architecture != "aarch64" or "bf16" not in findings.machine.flags:
        return None
    if share < _FAST_MATH_SHARE or findings.setup.session.entries.get(_FAST_MATH) == "1":
        return None
    return f"{share:.0%} of the time is spent in products, and the processor multiplies bfloat16"


@change(
    "fixed_dimensions", "rounding", 30, one_form("all"),
    lambda setup, _: setup.with_session(dims=setup.open_dims),
)  # fmt: skip
def _why_fixed_dimensions(findings: Findings) -> str | None:
    """Open dimensions are fixed to the sizes of the inputs, when the session opens."""
    dims = findings.setup.open_dims
    if not dims or findings.setup.session.dims:
        return None
    flow = sum(findings.operators[name] for name in ("If", "Loop"))
    computed = sum(findings.operators[name] for name in ("Shape", "Size", "ConstantOfShape"))
    if not computed + flow:
        return None
    return (
        f"{', '.join(dims)} {'is' if len(dims) == 1 else 'are'} open: {computed} kernels compute "
        f"shapes in each run, and {flow} are If or Loop"
    )


@change(
    "memory_pattern", "exact", 60, one_form("off"),
    lambda setup, _: setup.with_session(memory_pattern=False),
)  # fmt: skip
def _why_memory_pattern(findings: Findings) -> str | None:
    """Each tensor is allocated by itself, instead of one block for tensors of known sizes."""
    if not findings.setup.session.memory_pattern or findings.setup.session.parallel:
        return None
    sizes = [t.nbytes or 0 for k in findings.kernels for t in k.output_types]
    if len(sizes) < 2:
        return None
    return (
        f"{len(sizes):,} tensors, {sum(sizes):,} bytes in total, are placed in one block by a plan "
        "of the first run"
    )


@change(
    "layout",
    "rounding",
    41,
    one_form("NCHW"),
    lambda setup, _: setup.with_session(
        disabled=tuple(dict.fromkeys((*setup.session.disabled, *_TRANSFORMERS)))
    ),
)
def _why_layout(findings: Findings) -> str | None:
    """Convolutions in the layout of the model, where onnxruntime chose a blocked one or NHWC."""
    if set(_TRANSFORMERS) <= set(findings.setup.session.disabled):
        return None
    reorders = sum(findings.operators[name] for name in _REORDERS)
    others = [kernel for kernel in findings.kernels if kernel.op_type not in _REORDERS]
    channels_last = sum("channels_last" in kernel.attributes for kernel in others)
    if not reorders and not channels_last:
        return None
    share = findings.share(_REORDERS)
    return (
        f"{plural(reorders, 'change')} of layout {agree(reorders, 'takes', 'take')} "
        f"{share:.1%} of the time, and {plural(channels_last, 'kernel')} "
        f"{agree(channels_last, 'runs', 'run')} in NHWC"
    )


def _levels(findings: Findings) -> Sequence[str]:
    level = findings.setup.settings.optimization
    tried = ("extended", _BEST) if level != _BEST else ("basic", "extended")
    return [each for each in tried if each != level]


@change(
    "optimization", "rounding", 40, _levels,
    lambda setup, level: setup.with_settings(optimization=level),
)  # fmt: skip
def _why_optimization(findings: Findings) -> str | None:
    """Another level of graph optimisation."""
    level, kernels = findings.setup.settings.optimization, len(findings.kernels)
    if level != _BEST:
        return f"the level is {level}, and {kernels:,} kernels run: {_BEST} fuses more of them"
    nodes = len(findings.model.nodes)
    if nodes <= kernels:
        return None
    return f"the level {level} left {plural(kernels, 'kernel')} of {plural(nodes, 'node')}"


def _in_order(kernels: Sequence[Kernel]) -> Sequence[Kernel]:
    """Returns kernels after those whose outputs they read."""
    waiting, placed, computed = list(kernels), list[Kernel](), set[str]()
    outputs = {name for kernel in kernels for name in kernel.outputs}
    while waiting:
        able = [k for k in waiting if outputs.intersection(k.inputs) <= computed]
        if not able:  # the runtime's names repeat: keep its order
            return [*placed, *waiting]
        placed += able
        computed.update(name for kernel in able for name in kernel.outputs)
        waiting = [kernel for kernel in waiting if kernel not in able]
    return placed


@change(
    "parallel", "exact", 52,
    lambda findings: [str(n) for n in sorted({2, findings.machine.cpus})],
    lambda setup, n: setup.with_session(parallel=True, inter_op_threads=int(n)),
)  # fmt: skip
def _why_parallel(findings: Findings) -> str | None:
    """Nodes that do not wait for each other run at the same time: `ORT_PARALLEL`."""
    if findings.setup.session.parallel or findings.machine.cpus < 2:
        return None
    rows = findings.evidence.rows
    times = dict(zip(rows["kernels"], rows["time_us"], strict=True))
    kernels = [kernel for kernel in findings.kernels if not kernel.scope]
    ends: dict[str, float] = {}  # of the longest chain that computes each tensor, µs
    for kernel in _in_order(kernels):
        begin = max((ends.get(name, 0.0) for name in kernel.inputs), default=0.0)
        end = begin + float(times.get(kernel.name, 0.0))
        ends.update(dict.fromkeys(kernel.outputs, end))
    total = sum(float(times.get(kernel.name, 0.0)) for kernel in kernels)
    longest = max(ends.values(), default=0.0)
    if total <= 0 or 1 - longest / total < _PARALLEL_SHARE:
        return None
    return f"{1 - longest / total:.0%} of the time is spent beside the longest chain of kernels"


def _providers(findings: Findings) -> Sequence[str]:
    others = [name for name in findings.machine.providers if name not in _OTHER_PROVIDERS]
    short = [name.removesuffix("ExecutionProvider").lower() for name in others]
    return [name for name in short if name != findings.setup.settings.provider]


@change(
    "provider", "rounding", 42, _providers, lambda setup, name: setup.with_settings(provider=name)
)
def _why_provider(findings: Findings) -> str | None:
    """Another execution provider of the installed onnxruntime."""
    others = _providers(findings)
    return f"the installed onnxruntime also has {', '.join(others)}" if others else None


@change(
    "spinning", "exact", 51, one_form("off"), lambda setup, _: setup.with_entries({SPINNING: "0"})
)
def _why_spinning(findings: Findings) -> str | None:
    """Threads sleep at once when they have no work, instead of looking for it in a loop."""
    if findings.threads < 2 or not findings.setup.spins:
        return None
    return (
        f"{findings.threads} threads spin while they wait, on cores that other threads or programs "
        "may need"
    )


def _counts(findings: Findings) -> Sequence[str]:
    cpus = findings.machine.cpus
    counts = {1, findings.machine.cores, cpus}
    powers = {2**exponent for exponent in range(cpus.bit_length())}
    counts |= set(range(1, cpus + 1)) if cpus <= _EVERY_CORE else powers
    return [str(n) for n in sorted(counts) if n <= cpus and n != findings.threads]


@change(
    "threads", "rounding", 50, _counts, lambda setup, count: setup.with_settings(threads=int(count))
)
def _why_threads(findings: Findings) -> str | None:
    """Other numbers of threads for an operator: `intra_op_num_threads`."""
    if findings.machine.cpus < 2:
        return None
    share = findings.share(PRODUCTS)
    rows = findings.evidence.rows
    short = findings.share_of(rows[rows["time_us"] / rows["calls"] < _SHORT_US])
    return (
        f"{share:.0%} of the time is spent in products, which threads share, and {short:.0%} in "
        f"calls of under {_SHORT_US:.0f} µs, which wait for threads; {findings.threads} of "
        f"{findings.machine.cpus} processors are used"
    )
