"""A dot product as a card computes it: `tracer reveal tests/card/tile.py:product`."""

import numpy as np
import torch

ROWS = 64
"""Rows of each product, so that every call takes the same kernel."""


def product(a, b):
    """The sums of rows (N, K) or of vectors (K), by products of 64 x 64 in half precision."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.from_numpy(np.array(side, np.float32, ndmin=2)) for side in (a, b))
    sums = []
    for low in range(0, len(a), ROWS):
        sides = torch.zeros((2, ROWS, a.shape[1]), dtype=torch.float16, device=device)
        few = len(a[low : low + ROWS])
        sides[0, :few], sides[1, :few] = a[low : low + ROWS], b[low : low + ROWS]
        sums.append((sides[0] @ sides[1].T).diagonal()[:few])
    return torch.cat(sums).cpu().numpy()
