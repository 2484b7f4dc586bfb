"""Reads the 1,797 handwritten digits of scikit-learn: 8×8 pixels in 17 shades of grey.

They are the test set of Alpaydin and Kaynak's "Optical Recognition of Handwritten Digits" (UCI).
"""

from pathlib import Path

import numpy as np

from tracer.errors import InputError
from tracer.inputs.datasets.labelled import LabelledImages, split
from tracer.support.imports import folder_of

TEST_IMAGES = 360
WHITE = 16
SIDE = 8  # pixels


def read(folder: Path) -> LabelledImages:
    """Reads 1,437 training and 360 test images, uint8 [N, 1, 8, 8]; ignores `folder`.

    Raises UsageError if scikit-learn is not installed, InputError if it lacks the digits.
    """
    # The file that `sklearn.datasets.load_digits` reads: importing that takes a second.
    path = folder_of("the data set digits", "sklearn") / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        raise InputError(f"scikit-learn has no file {path}", "Install scikit-learn 1.9.")
    table = np.loadtxt(path, delimiter=",")
    shades, classes = table[:, :-1].reshape(-1, 1, SIDE, SIDE), table[:, -1]
    x = np.rint(shades * (255 / WHITE)).astype(np.uint8)
    train, test = split(x, classes.astype(np.int64), TEST_IMAGES)
    return LabelledImages("digits", train, test, tuple(str(digit) for digit in range(10)))
