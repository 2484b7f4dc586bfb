"""Windows over images, taken by numpy alone."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def patches(x, slid, fill):
    """(K, N * pixels): channels, then kernel positions; a window after the other."""
    pads = [(0, 0), (0, 0), *zip(slid.before, slid.after, strict=True)]
    around = np.pad(x, pads, constant_values=fill)
    axes = tuple(range(2, x.ndim))
    views = sliding_window_view(around, slid.extent, axis=axes)
    steps = [slice(None, None, s) for s in slid.strides]
    apart = [slice(None, None, d) for d in slid.dilations]
    taken = views[:, :, *steps, *apart]
    count = len(axes)
    order = (1, *range(2 + count, 2 + 2 * count), 0, *range(2, 2 + count))
    depth = x.shape[1] * int(np.prod(slid.kernel))
    return taken.transpose(order).reshape(depth, -1)
