"""LeNet, after LeCun et al. 1998, with ReLU and max pooling, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional


class LeNet(nn.Module):
    """Two convolutions and three fully connected layers; only the last one has a bias.

    Takes float32 [N, 3, 32, 32] and returns logits [N, classes].
    """

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5, bias=False)
        self.conv2 = nn.Conv2d(6, 16, 5, bias=False)
        self.fc1 = nn.Linear(400, 120, bias=False)
        self.fc2 = nn.Linear(120, 84, bias=False)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        h = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        h = functional.max_pool2d(functional.relu(self.conv2(h)), 2)
        h = functional.relu(self.fc1(torch.flatten(h, 1)))
        h = functional.relu(self.fc2(h))
        return self.fc3(h)

    input_shape = (3, 32, 32)
