"""Marks of tests that hold for some processors alone."""

import pytest

from tracer.records import environment

_FLAGS = set(environment.cpu_flags())

with_vnni = pytest.mark.skipif(
    not {"avx512f", "avx512_vnni"} <= _FLAGS,
    reason="kernels of onnxruntime for codes of few bits were measured with AVX-512 and VNNI",
)
"""Without VNNI some of these kernels add pairs of products that saturate, or compute in floats."""
