"""How LeNet is trained."""

from __future__ import annotations

from models.recipe import Recipe

RECIPE = Recipe(
    model="LeNet", input_shape=(3, 32, 32), epochs=30, batch=32, lr=2e-3, shipped="lenet"
)
