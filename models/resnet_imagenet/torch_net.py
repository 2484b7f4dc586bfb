"""ResNet for large images, after He et al. 2015, section 4.1, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional

from tracer.errors import UsageError

BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
KINDS = ("plain", "bottleneck", "large")
CHANNELS = (64, 128, 256, 512)
"""Channels that a stage puts out; twice as many in `large` networks."""


class Plain(nn.Module):
    """Two 3×3 convolutions, and the input, projected where the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = _shortcut(inside, outside, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, inside, H, W] to [N, outside, H/stride, W/stride]."""
        h = functional.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        h += x if self.shortcut is None else self.shortcut(x)
        return functional.relu(h)


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with `inner` channels between them, and the input."""

    def __init__(self, inside: int, inner: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.shortcut = _shortcut(inside, outside, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, inside, H, W] to [N, outside, H/stride, W/stride]."""
        h = functional.relu(self.bn1(self.conv1(x)))
        h = functional.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        h += x if self.shortcut is None else self.shortcut(x)
        return functional.relu(h)


class ImageNetResNet(nn.Module):
    """A 7×7 convolution, max pooling, four stages of 64 to 512 channels, a classifier.

    `plain` blocks are two 3×3 convolutions. `bottleneck` blocks go through a quarter of their
    channels; those of `large` have twice as many, inside and outside. A depth is known by its
    number of blocks, which are the published ones: `plain` 50 has the blocks of 34. As in the
    second experiment, no ReLU follows the first convolution.

    Takes float32 [N, 3, H, W], H and W at least 32, and returns logits [N, classes]. Raises
    UsageError for a depth or kind that does not exist.
    """

    input_shape = (3, 224, 224)

    def __init__(self, depth: int = 18, kind: str = "plain", classes: int = 1000) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise UsageError(f"depth {depth} does not exist", f"Give one of {tuple(BLOCKS)}.")
        if kind not in KINDS:
            raise UsageError(f"kind '{kind}' does not exist", f"Give one of {KINDS}.")
        blocks = BLOCKS[depth]
        widths = [2 * width if kind == "large" else width for width in CHANNELS]
        self.conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(64)
        self.stage1 = _stage(kind, 64, widths[0], 1, blocks[0])
        self.stage2 = _stage(kind, widths[0], widths[1], 2, blocks[1])
        self.stage3 = _stage(kind, widths[1], widths[2], 2, blocks[2])
        self.stage4 = _stage(kind, widths[2], widths[3], 2, blocks[3])
        self.fc = nn.Linear(widths[3], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        h = functional.max_pool2d(self.bn(self.conv(x)), 3, 2, 1)
        h = self.stage4(self.stage3(self.stage2(self.stage1(h))))
        h = functional.avg_pool2d(h, h.shape[2:])
        return self.fc(torch.flatten(h, 1))


def _stage(kind: str, inside: int, outside: int, stride: int, blocks: int) -> nn.Sequential:
    rest = (_block(kind, outside, outside, 1) for _ in range(1, blocks))
    return nn.Sequential(_block(kind, inside, outside, stride), *rest)


def _block(kind: str, inside: int, outside: int, stride: int) -> nn.Module:
    if kind == "plain":
        return Plain(inside, outside, stride)
    return Bottleneck(inside, outside // 4, outside, stride)


def _shortcut(inside: int, outside: int, stride: int) -> nn.Sequential | None:
    if inside == outside and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
