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


class Halves(chainer.Chain):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.one, self.two = L.Convolution2D(2, 2, 1), L.Convolution2D(2, 2, 1)


class Pair(Halves):
    """Both and a shortcut, as a link of today defines them."""

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, 2, H, W] to the same."""
        return F.relu(self.two(F.relu(self.one(x))) + x)


class CalledPair(Halves):
    """The same, called as links were before Chainer 5."""

    __call__ = Pair.forward


class InheritingPair(CalledPair):
    """The same, from a class of its own."""


class PairOfBoth(CalledPair):
    """The same; nothing calls its `forward`."""

    def forward(self) -> None:
        """Takes no input."""


class PairThatHandsOn(Pair):
    """The same, by `__call__` and `forward`."""

    def __call__(self, x: chainer.Variable) -> chainer.Variable:
        """[N, 2, H, W] to the same."""
        return super().__call__(x)


class Pairs(chainer.ChainList):
    """A list of pairs and what follows them."""

    input_shape = (2, 6, 6)

    def __init__(self, kind: type[chainer.Link] = Pair) -> None:
        super().__init__(kind(), kind())

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, 2, H, W] to the same."""
        for link in self:
            x = link(x)
        return F.tanh(x)


class CalledPairs(Pairs):
    """The same, called as links were before Chainer 5."""

    __call__ = Pairs.forward
    forward = None


class Recurrent(chainer.Chain):
    """Two steps of an LSTM, which keeps its state."""

    input_shape = (2, 6, 6)

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.rnn = L.LSTM(36, 3)

    def forward(self, x: chainer.Variable) -> chainer.Variable:
        """[N, 2, 6, 6] to [N, 3]."""
        self.rnn(x[:, 0])
        return self.rnn(x[:, 1])
