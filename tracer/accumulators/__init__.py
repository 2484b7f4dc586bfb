"""Narrow accumulators: what a model computes if its sums are kept in registers of few bits.

The way of a policy to a kernel:

1. `spec`: a policy assigns each node an `Accumulator`: bits, overflow, order of the terms.
2. `emulation.AccumulatorEmulation` replaces the kernels of those nodes. Its `wrap` is the seam to
   the interpreter: the argument `wrap_kernel` of `Interpreter`, called once for each node.
3. `nodes`: a lowering for each operator turns inputs into integers and names its dot products.
4. `engine.sum_runner.SumRunner` sums a node: in one pass (`engine.node_pass`), or in blocks
   (`engine.dots`, which chooses the kernel). `engine.oracle` defines results.
5. `kernels`: the compiled loops.
6. `statistics`: tallies of the sums, and bounds and certificates for any input.
"""
