"""ResNet for 32×32 images, after He et al. 2015, section 4.2, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional

from tracer.errors import UsageError

RESIDUALS = ("downsample", "always")


class Block(nn.Module):
    """Two 3×3 convolutions; what is added to them depends on `residual`.

    `downsample` adds a 1×1 projection of the input where the stride is not 1 and nothing
    elsewhere, though every block owns a projection. `always` is the published network: it adds
    the projection where the shape changes and the input itself elsewhere.
    """

    def __init__(self, inside: int, outside: int, stride: int, residual: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.projects = stride != 1
        self.identity = residual == "always" and not self.projects
        if not self.identity:
            self.conv3 = nn.Conv2d(inside, outside, 1, stride, bias=False)
            self.bn3 = nn.BatchNorm2d(outside)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, inside, H, W] to [N, outside, H/stride, W/stride]."""
        h = functional.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.projects:
            h = h + self.bn3(self.conv3(x))
        elif self.identity:
            h = h + x
        return functional.relu(h)


class CifarResNet(nn.Module):
    """`depth` = 6n + 2 layers: a convolution, three stages of n blocks, a classifier.

    Takes float32 [N, 3, 32, 32] and returns logits [N, classes]. Raises UsageError for a depth or
    a `residual` that does not exist.
    """

    def __init__(self, depth: int = 20, residual: str = "downsample", classes: int = 10) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise UsageError(f"depth {depth} does not exist", "It is 6n + 2: 8, 14, 20, 32, 44 ...")
        if residual not in RESIDUALS:
            raise UsageError(f"residual '{residual}' does not exist", f"Give one of {RESIDUALS}.")
        blocks = depth // 6
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.stage1 = _stage(16, 16, 1, blocks, residual)
        self.stage2 = _stage(16, 32, 2, blocks, residual)
        self.stage3 = _stage(32, 64, 2, blocks, residual)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        h = functional.relu(self.bn(self.conv(x)))
        h = self.stage3(self.stage2(self.stage1(h)))
        h = functional.avg_pool2d(h, h.shape[2:])
        return self.fc(torch.flatten(h, 1))

    input_shape = (3, 32, 32)


ResNet20 = CifarResNet  # depth 20 by default


def _stage(inside: int, outside: int, stride: int, blocks: int, residual: str) -> nn.Sequential:
    first = Block(inside, outside, stride, residual)
    return nn.Sequential(first, *(Block(outside, outside, 1, residual) for _ in range(1, blocks)))
