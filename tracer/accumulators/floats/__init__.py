"""Sums of products in narrow floats, and casts to them.

- `casting`: a number in a format; `operands`: arrays in a format with scales;
- `draws`: random bits of stochastic rounding; `rounding_to_odd`: sums that are rounded again;
- `oracle`: sums as the definitions say, in numpy, one term or block after the other; `matrix_cores`
  has the blocks of AMD, `state` what is known of sums on their way;
- `sums`: sums for those who need many; `compiled_sums` runs the `kernels`, which agree with the
  oracle bit by bit; `single_sums` those in lanes of float32, where these are as exact;
- `column_blocks`: what threads share; `kernel_formats`: formats as kernels read them.
"""
