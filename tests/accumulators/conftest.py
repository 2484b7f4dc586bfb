"""Random numbers that do not depend on which test ran before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.accumulators.nodes import RANDOM


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test draws the same numbers."""
    RANDOM.bit_generator.state = np.random.default_rng(5).bit_generator.state
