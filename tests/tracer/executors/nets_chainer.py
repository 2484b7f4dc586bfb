"""Small networks whose functions are known."""

import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812


class Toy(chainer.Chain):
    """A convolution, a block that is used twice, and a classifier."""

    input_shape = (2, 6, 6)

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        with self.init_scope():
            self.stem = L.Convolution2D(2, 4, 3, pad=1)
            self.block = L.Convolution2D(4, 4, 1)
            self.norm = L.BatchNormalization(4)
            self.fc = L.Linear(144, classes)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, 2, 6, 6] to [N, classes]."""
        h = F.relu(self.block(self.block(self.stem(x))))
        return self.fc(F.dropout(self.norm(h)))
