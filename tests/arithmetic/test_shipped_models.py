"""Shipped models have onnxruntime's bits, kernel by kernel and as a whole."""

from itertools import product

import pytest

from tests.arithmetic.test_runs import MODELS, verdicts_of
from tracer.arithmetic.replays import KnownRules
from tracer.graph import loading
from tracer.records.environment import cpu_flags

NOT_KNOWN = {} if "avx512_vnni" in cpu_flags() else {"llama.int4.onnx": {"MatMulNBits"}}
"""Operators whose kernels may differ still; all others of all models have equal bits."""
QUICK = [
    ("lenet/lenet.onnx", "all", 1),
    ("lenet/lenet.onnx", "none", 2),
    ("resnet_cifar/resnet20.onnx", "all", 2),
    ("resnet_cifar/resnet20.int8.onnx", "all", 1),
    ("transformer/transformer.onnx", "all", 1),
]
EVERY = product(sorted(MODELS.glob("*/*.onnx")), ("none", "all"), (1, 2))
OTHERS = [
    pytest.param(*each, marks=pytest.mark.nightly)
    for each in ((str(path.relative_to(MODELS)), *rest) for path, *rest in EVERY)
    if each not in QUICK
]


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    return KnownRules(tmp_path_factory.mktemp("rules"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("model", "level", "threads"), [*QUICK, *OTHERS])
def test_kernels_and_outputs_have_the_bits_of_onnxruntime(model, level, threads, rules):
    verdicts, outputs = verdicts_of(loading.load(MODELS / model), rules, level, threads)
    unequal = {each.node.op_type: each.reason for each in verdicts if not each.is_equal}
    allowed = NOT_KNOWN.get(model.rpartition("/")[2], set())
    assert not unequal.keys() - allowed, unequal
    if not unequal:
        assert all(outputs)
