"""The perplexity of a language model, as its logarithm, which can be averaged over samples."""

from typing import Any

import numpy as np

from tracer.errors import InputError
from tracer.inputs.datasets.batch import Batch
from tracer.metrics.metric import Outputs, only
from tracer.support.types import Array, FloatArray

_RANK = 3  # [N, tokens, vocabulary]


def perplexity(outputs: Outputs, labels: Any) -> FloatArray:
    """Returns the mean of -log2 p(next token) over the tokens of each sample, float64 (N,).

    It is the log2 of the perplexity, in bits per token: the cross-entropy of softmax, in base 2.
    The first output has the logits [N, tokens, vocabulary]; labels [N, tokens] are the tokens that
    follow. Raises InputError for outputs and labels that are not.
    """
    logits, tokens = only(outputs), np.asarray(labels)
    if not scores_tokens(logits, tokens):
        raise InputError(
            f"labels {tokens.dtype}{list(tokens.shape)} are not the next tokens of an output "
            f"{list(logits.shape)}",
            "perplexity needs logits [N, tokens, vocabulary] and data such as text:FILE.",
        )
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < logits.shape[2]:
        raise InputError(
            f"the next tokens are {tokens.min()} to {tokens.max()}, and the output has "
            f"{logits.shape[2]} logits",
            "Give text in the tokens of the model; text:FILE has bytes, 0 to 255.",
        )
    pairs = zip(logits, tokens.astype(np.int64), strict=True)
    return np.array([_bits(scores, own) for scores, own in pairs], np.float64)


def _bits(logits: Array, tokens: Array) -> float:
    """Returns the mean bits of one sample; float64 copies of more would be large."""
    numbers = logits.astype(np.float64)
    numbers -= numbers.max(1, keepdims=True)
    own = np.take_along_axis(numbers, tokens[:, None], 1)[:, 0]
    nats = np.log(np.exp(numbers).sum(1)) - own
    return float(nats.mean() / np.log(2))


def bits_per_byte(outputs: Outputs, labels: Any, token_bytes: float = 1.0) -> FloatArray:
    """Returns `perplexity` ÷ `token_bytes`, the mean bytes of text in a token, float64 (N,).

    The mean of all samples is the bits of all tokens ÷ the bytes that they stand for, which can be
    compared between tokenizers. Raises the errors of `perplexity`.
    """
    return perplexity(outputs, labels) / token_bytes


def scores_tokens(output: Array, labels: Array) -> bool:
    """Returns whether `labels` may be the tokens that follow those that `output` is of."""
    return output.ndim == _RANK and labels.shape == output.shape[:2] and labels.dtype.kind in "iu"


def has_row_per_token(output: Array, batch: Batch) -> bool:
    """Returns whether `output` is [N, tokens, values], with integers [N, tokens] among the inputs.

    The last axis has the logits of a decoder, or the classes of a tagger, for each token.
    """
    return output.ndim == _RANK and any(
        isinstance(value, np.ndarray)
        and value.dtype.kind in "iu"
        and value.shape[1:] == output.shape[1:2]
        for value in batch.inputs.values()
    )
