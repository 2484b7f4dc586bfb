"""How the transformer is trained."""

from __future__ import annotations

from models.recipe import Recipe

RECIPE = Recipe(
    model="PatchTransformer",
    input_shape=(3, 32, 32),
    epochs=40,
    batch=64,
    lr=5e-4,
    shipped="transformer",
)
