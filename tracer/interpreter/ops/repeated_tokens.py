"""NGramRepeatBlock, domain com.microsoft: no sequence of tokens is generated twice."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input, value_of
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def check_inputs(input_ids: Input, scores: Input, *, ngram_size: int) -> None:
    """Raises ModelError for scores of other sequences, and tokens without a score."""
    if input_ids.ndim != 2 or scores.ndim != 2 or input_ids.shape[0] != scores.shape[0]:
        raise ModelError(
            f"input_ids {list(input_ids.shape)} and scores {list(scores.shape)} do not fit",
            "They are [sequences, tokens] and [sequences, vocabulary].",
        )
    if ngram_size < 1:
        raise ModelError(f"ngram_size is {ngram_size}, and must be at least 1")
    tokens, vocabulary = value_of(input_ids), scores.shape[1]
    if tokens is not None and tokens.size and not 0 <= tokens.min() <= tokens.max() < vocabulary:
        raise ModelError(f"a token has no score: there are {vocabulary}, from 0")


@operator("NGramRepeatBlock", domain=DOMAIN, copies=1, check=check_inputs)
def ngram_repeat_block(input_ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Returns the scores, -inf for each token that would repeat `ngram_size` tokens."""
    blocked = scores.copy()
    if input_ids.shape[1] < ngram_size:
        return blocked
    runs = np.lib.stride_tricks.sliding_window_view(input_ids, ngram_size, axis=1)
    last = input_ids[:, None, input_ids.shape[1] - ngram_size + 1 :]
    rows, places = np.nonzero((runs[..., :-1] == last).all(axis=-1))
    blocked[rows, runs[rows, places, -1]] = -np.inf
    return blocked
