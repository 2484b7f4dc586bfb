"""How the ResNets for small images are trained."""

from __future__ import annotations

from models.recipe import Recipe

RECIPE = Recipe(
    model="CifarResNet", input_shape=(3, 32, 32), epochs=12, batch=64, lr=5e-4, shipped="resnet20"
)
