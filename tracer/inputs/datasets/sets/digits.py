"""Reads the 1,797 handwritten digits of scikit-learn: 8×8 pixels in 17 shades of grey.

They are the test set of Alpaydin and Kaynak's "Optical Recognition of Handwritten Digits" (UCI).
"""

from pathlib import Path

import numpy as np

from tracer.inputs.datasets.labelled import LabelledImages, split
from tracer.support.optional import require

TEST_IMAGES = 360
WHITE = 16


def read(folder: Path) -> LabelledImages:
    """Reads 1,437 training and 360 test images, uint8 [N, 1, 8, 8]; ignores `folder`.

    Raises UsageError if scikit-learn is not installed.
    """
    require("the data set digits", "sklearn")
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = np.rint(bunch.images * (255 / WHITE)).astype(np.uint8)[:, None]
    train, test = split(x, bunch.target.astype(np.int64), TEST_IMAGES)
    return LabelledImages("digits", train, test, tuple(str(digit) for digit in range(10)))
