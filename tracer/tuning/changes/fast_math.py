"""Products of floats in bfloat16, which some processors of ARM multiply faster."""

from collections.abc import Sequence

from tracer.tuning.changes import Change
from tracer.tuning.findings import PRODUCTS, Findings
from tracer.tuning.setup import Setup

_ENTRY = "mlas.enable_gemm_fastmath_arm64_bfloat16"
_SHARE = 0.1


def _applies(findings: Findings) -> str | None:
    share = findings.share(PRODUCTS)
    if findings.machine.architecture != "aarch64" or "bf16" not in findings.machine.flags:
        return None
    if share < _SHARE or findings.setup.session.entries.get(_ENTRY) == "1":
        return None
    return f"{share:.0%} of the time is spent in products, and the processor multiplies bfloat16"


def _values(findings: Findings) -> Sequence[str]:
    return ["bfloat16"]


def _apply(setup: Setup, value: str) -> Setup:
    return setup.with_entries({_ENTRY: "1"})


CHANGE = Change("fast_math", "float16", 56, _applies, _values, _apply)
