"""Kernels of narrowing: weights that are rounded column by column."""
