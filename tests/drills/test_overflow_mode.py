"""The drill of CONTRIBUTING: an overflow mode is a name, and what each file does about it."""

import pytest

MODES = "tracer/accumulators/spec/__init__.py"
ORACLE = "tracer/accumulators/engine/oracle.py"
KERNEL = "tracer/accumulators/kernels/single_sums.py"
MATCHED = (MODES, ORACLE, KERNEL)
"""Files that match every mode, so that the type checker names them."""


def check_types(copy):
    options = ("--follow-imports=skip", "--ignore-missing-imports", "--explicit-package-bases",
               "--cache-dir=/dev/null")  # fmt: skip
    return copy.run("-m", "mypy", *options, *MATCHED).stdout


def add_name(copy):
    """The mode `mirror` reflects a sum at the end of the range that it leaves."""
    copy.edit(MODES, '"wrap", "zero", "error"]', '"wrap", "zero", "error", "mirror"]')


@pytest.mark.nightly
def test_a_forgotten_overflow_mode_fails_type_checking(copy):
    assert "assert_never" not in check_types(copy)
    add_name(copy)
    errors = [line for line in check_types(copy).splitlines() if "assert_never" in line]
    assert {line.split(":")[0] for line in errors} == set(MATCHED)
    assert all("mirror" in line for line in errors)


@pytest.mark.nightly
def test_an_overflow_mode_takes_three_edits(copy):
    add_name(copy)
    copy.edit(MODES, '        case "wrap":\n', '        case "wrap" | "mirror":\n')
    copy.edit(
        ORACLE,
        '        case "zero":\n',
        '        case "mirror":\n'
        "            above = np.where(values > high, 2 * high - values, values)\n"
        "            return np.where(values < low, 2 * low - values, above)\n"
        '        case "zero":\n',
    )
    copy.edit(KERNEL, "WRAP, ZERO, EXACT = range(4)", "WRAP, ZERO, EXACT, MIRROR = range(5)")
    copy.edit(
        KERNEL,
        '        case "zero":\n',
        '        case "mirror":\n            return MIRROR\n        case "zero":\n',
    )
    copy.edit(
        KERNEL,
        "    if rule == ZERO:\n        return",
        "    if rule == MIRROR:\n"
        "        reflected = 2 * high - wide if wide > high else 2 * low - wide\n"
        "        return wide if low <= wide <= high else reflected\n"
        "    if rule == ZERO:\n        return",
    )
    assert "assert_never" not in check_types(copy)
    assert "mirror" in copy.tracer("interpret", "--help-all")
    by_hand, tree, by_sign = copy.python(COMPUTE).split("\n")[:3]
    assert by_hand == "[[-96]]"  # 100, 200 -> 54, 54 - 150
    assert tree == by_sign == "True True True"


COMPUTE = """
    import numpy as np

    from tracer.accumulators.engine import dots, oracle
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.spec.orders import Terms, named

    terms = np.array([[100, 100, -150]])
    narrow = Accumulator(8, overflow="mirror")
    print(oracle.emulate(terms, np.ones((3, 1), int), None, Terms(3), narrow).values)

    random = np.random.default_rng(0)
    left, right = random.integers(-50, 50, (3, 20)), random.integers(-50, 50, (20, 5))
    for order in ("tree", "sorted"):
        narrow = Accumulator(12, overflow="mirror", order=named(order))
        defined = oracle.emulate(left, right, None, Terms(20), narrow)
        _, computed = dots.measure(left, right, None, Terms(20), narrow)
        print(
            defined.events.any(),
            np.array_equal(computed.values, defined.values),
            np.array_equal(computed.events, defined.events),
        )
"""
