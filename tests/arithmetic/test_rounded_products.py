"""MatMulNBits whose activations are rounded to 8 bits is replayed with onnxruntime's bits.

python -m tests.arithmetic.test_rounded_products     prints the digests of this processor's outputs
"""

import hashlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from onnx import helper

from tests.arithmetic.test_products import check
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import replay_of
from tracer.records.environment import cpu_flags

CASES = [
    (1, 128, 16, ""), (1, 224, 6, "zeros bias"), (5, 128, 18, "zeros"),
    (3, 224, 20, "zeros bias"), (4, 96, 7, "bias"),
]  # fmt: skip
"""Rows, terms, columns and optional inputs."""
WITH_AVX2 = "df92237d19d373c3 5a2b4cce43657e44 085cd4b692f5bbb8 24c2cf2518876414 0d4ad717c178b7e5"
"""Of each case, as valgrind's processor gave them, which has AVX2 and no more."""
RULES = [
    {"blocks": 2, "zeros_first": True}, {"blocks": 1, "zeros_first": True},
    *[{"blocks": 2, "zeros_first": False}] * 3,
]  # fmt: skip
LACKS_VNNI = "avx512f" in cpu_flags() and "avx512_vnni" not in cpu_flags()


def make(rows, terms, columns, names):
    random, blocks = np.random.default_rng(0), terms // 32
    constants = {
        "codes": random.integers(0, 256, (columns, blocks, 16)).astype(np.uint8),
        "scales": random.uniform(0.01, 1, columns * blocks).astype(np.float32),
        "zeros": random.integers(0, 256, columns * -(-blocks // 2)).astype(np.uint8),
        "bias": random.standard_normal(columns).astype(np.float32),
    }
    optional = [name if name in names else "" for name in ("zeros", "", "bias")]
    node = helper.make_node(
        "MatMulNBits", ["a", "codes", "scales", *optional], ["y"], domain="com.microsoft",
        K=terms, N=columns, bits=4, block_size=32, accuracy_level=4,
    )  # fmt: skip
    given = {name: each for name, each in constants.items() if name in node.input}
    inputs = {"a": (np.dtype(np.float32), (rows, terms))}
    return Kernel(node, inputs, given, {"com.microsoft": 1})


def draw(kernel):
    return {"a": np.random.default_rng(5).standard_normal(kernel.shape(0)).astype(np.float32)}


def digest(output):
    return hashlib.sha256(np.ascontiguousarray(output)).hexdigest()[:16]


@pytest.mark.skipif(LACKS_VNNI, reason="AVX-512 without VNNI has kernels of its own")
@pytest.mark.parametrize("case", CASES)
def test_products_of_activations_that_are_rounded(case):
    check(make(*case))


@pytest.mark.parametrize(
    ("case", "facts", "expected"), list(zip(CASES, RULES, WITH_AVX2.split(), strict=True))
)
def test_the_kernels_of_another_processor_are_replayed_here(case, facts, expected):
    kernel = make(*case)
    replay = replay_of("com.microsoft", "MatMulNBits")
    (output,) = replay.replay(kernel, {"rounded": True, **facts}, draw(kernel))
    assert digest(output) == expected


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind hides AVX-512 and VNNI")
def test_the_digests_are_those_of_a_processor_with_avx2():
    command = ["valgrind", "--tool=none", "-q", sys.executable, "-m", __name__]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.split() == WITH_AVX2.split()


if __name__ == "__main__":
    for case in CASES:
        kernel = make(*case)
        sys.stdout.write(digest(kernel.run(draw(kernel))[0]) + "\n")
