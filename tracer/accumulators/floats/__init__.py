"""Sums of products in narrow floats, and casts to them.

- `casting`: a number in a format;
- `draws`: random bits of stochastic rounding;
- `oracle`: sums as the definitions say, in numpy, one term or block after the other;
- `sums`: sums for those who need many, by compiled kernels that agree bit by bit.
"""
