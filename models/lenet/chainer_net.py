"""LeNet, after LeCun et al. 1998, with ReLU and max pooling, in Chainer."""

from __future__ import annotations  # shipped models record the lines of this file

import chainer
import chainer.functions as F  # noqa: N812 - the name every Chainer program gives it
import chainer.links as L  # noqa: N812


class LeNet(chainer.Chain):
    """Two convolutions and three fully connected layers; only the last one has a bias.

    Takes float32 [N, 3, 32, 32] and returns logits [N, classes].
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 6, 5, nobias=True)
            self.conv2 = L.Convolution2D(6, 16, 5, nobias=True)
            self.fc1 = L.Linear(400, 120, nobias=True)
            self.fc2 = L.Linear(120, 84, nobias=True)
            self.fc3 = L.Linear(84, classes)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """Images to logits."""
        h = F.max_pooling_2d(F.relu(self.conv1(x)), 2)
        h = F.max_pooling_2d(F.relu(self.conv2(h)), 2)
        h = F.relu(self.fc1(h))
        h = F.relu(self.fc2(h))
        return self.fc3(h)

    input_shape = (3, 32, 32)
