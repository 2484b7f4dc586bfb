"""Reads 1,797 handwritten digits: 8×8 pixels in 17 shades of grey.

They are the test set of Alpaydin and Kaynak's "Optical Recognition of Handwritten Digits"
(https://doi.org/10.24432/C50P49, CC BY 4.0), in the file that scikit-learn has, too.
"""

from pathlib import Path

import numpy as np

from tracer.inputs.datasets.sets import LabelledImages, split
from tracer.support.files import example

TEST_IMAGES = 360
WHITE = 16
SIDE = 8  # pixels


def read(folder: Path) -> LabelledImages:
    """Reads 1,437 training and 360 test images, uint8 [N, 1, 8, 8]; ignores `folder`."""
    table = np.loadtxt(example("digits.csv.gz"), delimiter=",")
    shades, classes = table[:, :-1].reshape(-1, 1, SIDE, SIDE), table[:, -1]
    x = np.rint(shades * (255 / WHITE)).astype(np.uint8)
    train, test = split(x, classes.astype(np.int64), TEST_IMAGES)
    return LabelledImages("digits", train, test, tuple(str(digit) for digit in range(10)))
