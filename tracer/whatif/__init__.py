"""Evaluates a network in narrower accumulators: sweeps widths, and searches the narrowest.

How `tracer.api.whatif` answers:

1. `variants`: reads the widths to try for each node, some of which may be pinned, and runs each
   graph (the quantised one, and copies whose weights and activations have fewer bits) in each
   accumulator.
2. `evaluation.Evaluator`: score and overflows at any widths. It cuts the data into shards, which
   the workers of a pool run (`shard_runs`), and merges what they tell. A worker runs its shards
   once in wide accumulators; `reuse` holds what later runs continue from.
3. `sweep`: evaluates every width, then searches; `evaluation.EvaluationCache` computes nothing
   twice, and `storage.whatif_file` continues what was interrupted.
4. `criteria`: what an evaluation is judged by, and when a what-if ends.

`accumulators` runs accumulators of other kinds, which have nothing in common, one after the other.
"""
