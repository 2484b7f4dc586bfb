"""Small networks whose operators are known."""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import record_function


class Toy(nn.Module):
    """A convolution, a block that is used twice, and a classifier."""

    input_shape = (2, 6, 6)

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(144, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 2, 6, 6] to [N, classes]."""
        h = self.stem(x)
        h = self.block(self.block(h))
        h = self.drop(functional.relu(self.norm(h)))
        return self.fc(torch.flatten(h, 1))


class Positions(nn.Module):
    """Gives no value that has a gradient."""

    input_shape = (5,)

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 5] to integers [N]."""
        return self.fc(x).argmax(1)


class Flat(nn.Module):
    """Returns a vector, without an attribute for its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 5] to [N]."""
        return self.fc(x).squeeze(1)


class Overwriting(Toy):
    """Changes in place what its backward pass needs."""

    def forward(self, x):
        exponential = super().forward(x).exp()
        twice = exponential * 2
        exponential.add_(1)
        return twice + exponential


class Exiting(Toy):
    def forward(self, x):
        sys.exit(7)


class Ranged(nn.Module):
    """Names a part of its code, which calls operators and a module, and a part inside."""

    input_shape = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 4] to [N, 4]."""
        with record_function("mixing"):
            h = torch.relu(self.fc(x))
            with record_function("mixing/inner"):
                h = torch.sigmoid(h)
        return torch.relu(h)
