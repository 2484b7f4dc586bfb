"""The drill of CONTRIBUTING: a rounding mode is a name, and what each file does about it."""

import pytest

MODES = "tracer/accumulators/spec/__init__.py"
ORACLE = "tracer/accumulators/spec/accumulator.py"
KERNEL = "tracer/accumulators/kernels/single_sums.py"
MATCHED = (ORACLE, KERNEL)
"""Files that match every rounding, so that the type checker names them."""


@pytest.mark.nightly
def test_a_rounding_mode_takes_the_edits_that_the_type_checker_names(copy):
    copy.edit(MODES, '"truncate", "stochastic"]', '"truncate", "stochastic", "ceiling"]')
    options = ("--follow-imports=skip", "--ignore-missing-imports", "--explicit-package-bases",
               "--cache-dir=/dev/null")  # fmt: skip
    types = copy.run("-m", "mypy", *options, MODES, *MATCHED).stdout.splitlines()
    named = {line.split(":")[0] for line in types if "assert_never" in line}
    assert named == set(MATCHED)
    copy.edit(
        ORACLE,
        '        case "stochastic":\n            places',
        '        case "ceiling":\n            up = rest > 0\n'
        '        case "stochastic":\n            places',
    )
    copy.edit(
        KERNEL,
        '        case "stochastic":\n            return _STOCHASTIC\n',
        '        case "ceiling":\n            return 99\n'
        '        case "stochastic":\n            return _STOCHASTIC\n',
    )
    copy.edit(
        KERNEL,
        "    if rule == _TRUNCATE:\n        return",
        "    if rule == 99:\n        return floor + (rest > 0)\n"
        "    if rule == _TRUNCATE:\n        return",
    )
    assert "ceiling" in copy.tracer("interpret", "--help-all")
    by_hand, *agreed = copy.python(COMPUTE).split("\n")[:3]
    assert by_hand == "[[10]]"  # 5/4 + 11/4 + 17/4 upwards: 2 + 3 + 5
    assert agreed == ["True", "True"]


COMPUTE = """
    import numpy as np

    from tracer.accumulators.engine import dots, oracle
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.spec.orders import Terms, named

    up = dict(product_shift=2, product_rounding="ceiling")
    terms, ones = np.array([[5, 11, 17]]), np.ones((3, 1), int)
    print(oracle.emulate(terms, ones, None, Terms(3), Accumulator(16, **up)).values // 4)

    random = np.random.default_rng(0)
    left, right = random.integers(-50, 50, (3, 20)), random.integers(-50, 50, (20, 5))
    for order in ("tree", "sorted"):
        narrow = Accumulator(12, order=named(order), **up)
        defined = oracle.emulate(left, right, None, Terms(20), narrow)
        _, computed = dots.measure(left, right, None, Terms(20), narrow)
        print(np.array_equal(computed.values, defined.values))
"""
