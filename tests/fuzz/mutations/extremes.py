"""Values that programs trip over: sizes, numbers, names."""

from random import Random

INTEGERS = (
    0, 1, -1, 2, 3, 7, 8, 64, 65, 127, 128, 255, 256, 1 << 15, (1 << 31) - 1, 1 << 31, -(1 << 31),
    1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63), -2, -50, 1_000_003,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 1e30, 3.4e38, -3.4e38, 1e308, float("inf"),
    float("-inf"), float("nan"), 2.0**31, 2.0**63,
)  # fmt: skip
TEXTS = (
    "", " ", "x", "a\0b", "\x1b[31mred\x1b[0m", "two\nlines", "\u202eright", "[bold]", "$\\frac$",
    "<b>&amp;", "a" * 300, "b" * 20_000, "..", "../../secret", "/dev/zero", "é" * 50, "\U0001f600",
    "%s%n", "'", '"', "a,b", "=1+1", "{0}", "NOTSET", "SAME_UPPER", "constant", "ai.onnx",
    "com.microsoft", "ai.onnx.ml", "float", "-1", "1e400",
)  # fmt: skip


def integer(random: Random) -> int:
    """An extreme, or a small number: it is refused less often."""
    return random.choice(INTEGERS) if random.random() < 0.6 else random.randint(-4, 9)


def floating(random: Random) -> float:
    return random.choice(FLOATS) if random.random() < 0.8 else random.uniform(-300, 300)


def text(random: Random) -> str:
    return random.choice(TEXTS)
