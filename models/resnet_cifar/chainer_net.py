"""ResNet for 32×32 images, after He et al. 2015, section 4.2, in Chainer."""

from __future__ import annotations  # shipped models record the lines of this file

import chainer
import chainer.functions as F  # noqa: N812 - the name every Chainer program gives it
import chainer.links as L  # noqa: N812

from tracer.errors import UsageError

RESIDUALS = ("downsample", "always")
EPS = 1e-5  # PyTorch's; Chainer's own 2e-5 would make the twins differ


class Block(chainer.Chain):
    """Two 3×3 convolutions; what is added to them depends on `residual`.

    `downsample` adds a 1×1 projection of the input where the stride is not 1 and nothing
    elsewhere, though every block owns a projection. `always` is the published network: it adds
    the projection where the shape changes and the input itself elsewhere.
    """

    def __init__(self, inside: int, outside: int, stride: int, residual: str) -> None:
        super().__init__()
        self.projects = stride != 1
        self.identity = residual == "always" and not self.projects
        with self.init_scope():
            self.conv1 = L.Convolution2D(inside, outside, 3, stride, 1, nobias=True)
            self.bn1 = L.BatchNormalization(outside, eps=EPS)
            self.conv2 = L.Convolution2D(outside, outside, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(outside, eps=EPS)
            if not self.identity:
                self.conv3 = L.Convolution2D(inside, outside, 1, stride, nobias=True)
                self.bn3 = L.BatchNormalization(outside, eps=EPS)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, inside, H, W] to [N, outside, H/stride, W/stride]."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        if self.projects:
            h = h + self.bn3(self.conv3(x))
        elif self.identity:
            h = h + x
        return F.relu(h)


class Chained(chainer.ChainList):
    """Links one after the other. `chainer.Sequential` numbers three and more in a wrong order."""

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Through every link."""
        for link in self:
            x = link(x)
        return x


class CifarResNet(chainer.Chain):
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
        with self.init_scope():
            self.conv = L.Convolution2D(3, 16, 3, 1, 1, nobias=True)
            self.bn = L.BatchNormalization(16, eps=EPS)
            self.stage1 = _stage(16, 16, 1, blocks, residual)
            self.stage2 = _stage(16, 32, 2, blocks, residual)
            self.stage3 = _stage(32, 64, 2, blocks, residual)
            self.fc = L.Linear(64, classes)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Images to logits."""
        h = F.relu(self.bn(self.conv(x)))
        h = self.stage3(self.stage2(self.stage1(h)))
        h = F.average_pooling_2d(h, h.shape[2:])
        return self.fc(h)

    input_shape = (3, 32, 32)


ResNet20 = CifarResNet  # depth 20 by default


def _stage(inside: int, outside: int, stride: int, blocks: int, residual: str) -> Chained:
    first = Block(inside, outside, stride, residual)
    return Chained(first, *(Block(outside, outside, 1, residual) for _ in range(1, blocks)))
