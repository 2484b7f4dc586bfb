"""How the ResNets for large images are trained."""

from __future__ import annotations

from models.recipe import Recipe

RECIPE = Recipe(model="ImageNetResNet", input_shape=(3, 224, 224), epochs=10, batch=32, lr=1e-3)
