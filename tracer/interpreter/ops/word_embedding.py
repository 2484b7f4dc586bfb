"""WordConvEmbedding, domain com.microsoft: a vector for each word, by a convolution of letters."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input, value_of
from tracer.interpreter.numeric import products
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def check_inputs(Sequence: Input, W: Input, B: Input, C: Input) -> None:
    """Raises ModelError for inputs that do not fit each other."""
    if Sequence.ndim != 2 or W.ndim != 4 or C.ndim != 2:
        raise ModelError(
            f"Sequence {list(Sequence.shape)}, W {list(W.shape)} and C {list(C.shape)} do not fit",
            "They are [words, letters], [filters, 1, window, size] and [alphabet, size].",
        )
    if W.shape[1] != 1 or W.shape[3] != C.shape[1] or B.shape != W.shape[:1]:
        raise ModelError(
            f"W {list(W.shape)} and B {list(B.shape)} do not fit letters of size {C.shape[1]}"
        )
    if Sequence.shape[1] < W.shape[2]:
        raise ModelError(f"words of {Sequence.shape[1]} letters, and a window of {W.shape[2]}")
    letters = value_of(Sequence)
    if (
        letters is not None
        and letters.size
        and not 0 <= letters.min() <= letters.max() < C.shape[0]
    ):
        raise ModelError(f"a letter is not in the alphabet, which has {C.shape[0]}, from 0")


@operator("WordConvEmbedding", domain=DOMAIN, check=check_inputs)
def word_conv_embedding(
    Sequence: Array,
    W: Array,
    B: Array,
    C: Array,
    *,
    char_embedding_size: int = -1,
    conv_window_size: int = -1,
    embedding_size: int = -1,
) -> Array:
    """Returns [words, filters]: the largest tanh of a convolution (W, B) of embedded letters.

    C is the table of letters, 0 the padding. Windows reach to the last letter of a word, or are
    the first one of a shorter word. A word without letters is 0.
    """
    words, window = len(Sequence), W.shape[2]
    limits.allow((words, Sequence.shape[1] - window + 1, window * C.shape[1]), C.dtype)
    counts = np.where(Sequence[:, 0] > 0, (Sequence > 0).sum(axis=1), 0)
    views = np.lib.stride_tricks.sliding_window_view(C[Sequence], window, axis=1)
    rows = np.ascontiguousarray(views.swapaxes(-1, -2)).reshape(*views.shape[:2], -1)
    scores = np.tanh(products.matmul(rows, W.reshape(len(W), -1).T) + B)
    reached = np.maximum(counts, window) - window + 1
    beyond = np.arange(views.shape[1]) >= reached[:, None]
    largest = np.where(beyond[..., None], -np.inf, scores).max(axis=1)
    return np.where(counts[:, None] > 0, largest, 0).astype(C.dtype)
