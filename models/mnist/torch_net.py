"""The basic MNIST convnet, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional


class MnistNet(nn.Module):
    """Two convolutions, one pooling, two fully connected layers with dropout between them.

    Takes float32 [N, 1, 28, 28] and returns log-probabilities [N, classes].
    """

    input_shape = (1, 28, 28)

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(9216, 128)
        self.dropout2 = nn.Dropout(0.5)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to log-probabilities."""
        h = functional.relu(self.conv1(x))
        h = functional.max_pool2d(functional.relu(self.conv2(h)), 2)
        h = torch.flatten(self.dropout1(h), 1)
        h = functional.relu(self.fc1(h))
        return functional.log_softmax(self.fc2(self.dropout2(h)), dim=1)
