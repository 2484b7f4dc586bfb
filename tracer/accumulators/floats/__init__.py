"""Sums of products in narrow floats, and casts to them.

- `casting`: a number in a format; random bits of stochastic rounding; numbers with scales; what is
  known of sums on their way;
- `oracle`: sums as the definitions say, in numpy, one term or block after the other;
- `compiled_sums` runs the `kernels`, which agree with the oracle bit by bit, in lanes of float32
  where these are as exact.
"""
