"""How the MNIST convnet is trained."""

from __future__ import annotations

from models.recipe import Recipe

RECIPE = Recipe(model="MnistNet", input_shape=(1, 28, 28), epochs=10, batch=64, lr=1e-3)
