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
    (1, 128, 16, "", 32), (1, 224, 6, "zeros bias", 32), (5, 128, 18, "zeros", 32),
    (3, 224, 20, "zeros bias", 32), (4, 96, 7, "bias", 32),
    (1, 448, 16, "zeros", 64), (5, 384, 18, "bias", 64),
    (1, 384, 7, "", 128), (3, 640, 20, "zeros bias", 128), (4, 512, 9, "zeros", 256),
    (1, 128, 9, "zeros", 32, 8), (3, 448, 8, "bias", 64, 8), (5, 384, 7, "", 128, 8),
]  # fmt: skip
"""Rows, terms, columns, optional inputs, the size of blocks and the bits of weights."""
WITH_AVX2 = """
df92237d19d373c3 5a2b4cce43657e44 085cd4b692f5bbb8 24c2cf2518876414 0d4ad717c178b7e5
e4d025a574bd65d7 c0ce1d3fabaf0f60 b892d291527767c1 d22a181253316e7e 5514a38700473e50
1835685b179caecb 2d3f2e1365168d83 332a05ce62542282
"""
"""Of each case, as valgrind's processor gave them, which has AVX2 and no more."""
RULES = [
    {"blocks": 2, "zeros_first": True}, {"blocks": 1, "zeros_first": True},
    *[{"blocks": 2, "zeros_first": False}] * 3,
    *[{"blocks": 1, "lanes": 8, "zeros_first": rows == 1, "together": True}
      for rows, *_ in CASES[5:10]],
    {"blocks": 2, "zeros_first": False},
    *[{"blocks": 1, "lanes": 8, "zeros_first": False, "together": True}] * 2,
]  # fmt: skip
LACKS_VNNI = "avx512f" in cpu_flags() and "avx512_vnni" not in cpu_flags()


def make(rows, terms, columns, names, block, bits=4):
    random, blocks = np.random.default_rng(0), terms // block
    constants = {
        "codes": random.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "scales": random.uniform(0.01, 1, columns * blocks).astype(np.float32),
        "zeros": random.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8),
        "bias": random.standard_normal(columns).astype(np.float32),
    }
    optional = [name if name in names else "" for name in ("zeros", "", "bias")]
    node = helper.make_node(
        "MatMulNBits", ["a", "codes", "scales", *optional], ["y"], domain="com.microsoft",
        K=terms, N=columns, bits=bits, block_size=block, accuracy_level=4,
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
