"""ResNet for large images, after He et al. 2015, section 4.1, in Chainer."""

from __future__ import annotations  # shipped models record the lines of this file

import chainer
import chainer.functions as F  # noqa: N812 - the name every Chainer program gives it
import chainer.links as L  # noqa: N812

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
EPS = 1e-5  # PyTorch's; Chainer's own 2e-5 would make the twins differ


class Plain(chainer.Chain):
    """Two 3×3 convolutions, and the input, projected where the shape changes."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(inside, outside, 3, stride, 1, nobias=True)
            self.bn1 = L.BatchNormalization(outside, eps=EPS)
            self.conv2 = L.Convolution2D(outside, outside, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(outside, eps=EPS)
            self.shortcut = _shortcut(inside, outside, stride)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, inside, H, W] to [N, outside, H/stride, W/stride]."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + (x if self.shortcut is None else self.shortcut(x)))


class Bottleneck(chainer.Chain):
    """1×1, 3×3 and 1×1 convolutions with `inner` channels between them, and the input."""

    def __init__(self, inside: int, inner: int, outside: int, stride: int) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(inside, inner, 1, nobias=True)
            self.bn1 = L.BatchNormalization(inner, eps=EPS)
            self.conv2 = L.Convolution2D(inner, inner, 3, stride, 1, nobias=True)
            self.bn2 = L.BatchNormalization(inner, eps=EPS)
            self.conv3 = L.Convolution2D(inner, outside, 1, nobias=True)
            self.bn3 = L.BatchNormalization(outside, eps=EPS)
            self.shortcut = _shortcut(inside, outside, stride)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, inside, H, W] to [N, outside, H/stride, W/stride]."""
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.shortcut is None else self.shortcut(x)))


class Chained(chainer.ChainList):
    """Links one after the other. `chainer.Sequential` numbers three and more in a wrong order."""

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Through every link."""
        for link in self:
            x = link(x)
        return x


class ImageNetResNet(chainer.Chain):
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
        with self.init_scope():
            self.conv = L.Convolution2D(3, 64, 7, 2, 3, nobias=True)
            self.bn = L.BatchNormalization(64, eps=EPS)
            self.stage1 = _stage(kind, 64, widths[0], 1, blocks[0])
            self.stage2 = _stage(kind, widths[0], widths[1], 2, blocks[1])
            self.stage3 = _stage(kind, widths[1], widths[2], 2, blocks[2])
            self.stage4 = _stage(kind, widths[2], widths[3], 2, blocks[3])
            self.fc = L.Linear(widths[3], classes)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Images to logits."""
        h = F.max_pooling_2d(self.bn(self.conv(x)), 3, 2, 1, cover_all=False)
        h = self.stage4(self.stage3(self.stage2(self.stage1(h))))
        h = F.average_pooling_2d(h, h.shape[2:])
        return self.fc(h)


def _stage(kind: str, inside: int, outside: int, stride: int, blocks: int) -> Chained:
    rest = (_block(kind, outside, outside, 1) for _ in range(1, blocks))
    return Chained(_block(kind, inside, outside, stride), *rest)


def _block(kind: str, inside: int, outside: int, stride: int) -> chainer.Chain:
    if kind == "plain":
        return Plain(inside, outside, stride)
    return Bottleneck(inside, outside // 4, outside, stride)


def _shortcut(inside: int, outside: int, stride: int) -> Chained | None:
    if inside == outside and stride == 1:
        return None
    return Chained(
        L.Convolution2D(inside, outside, 1, stride, nobias=True),
        L.BatchNormalization(outside, eps=EPS),
    )
