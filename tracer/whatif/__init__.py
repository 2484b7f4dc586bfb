"""Evaluates a network in narrower accumulators: sweeps widths, and searches the narrowest.

How `tracer.api.whatif` answers:

1. `width_plan`: the widths to try for each node; some nodes may be pinned to a width.
2. `variants`: runs each graph (the quantised one, and copies whose weights and activations have
   fewer bits) in each accumulator.
3. `evaluation.Evaluator`: score and overflows at any widths. It cuts the data into shards, which
   the workers of a pool run (`shard_runs`), and merges what they tell. A worker runs its shards
   once in wide accumulators; `reuse` holds what later runs continue from.
4. `sweep`: evaluates every width, then searches; `evaluation.EvaluationCache` computes nothing
   twice, and `shard_file` continues what was interrupted.
5. `criteria`: what an evaluation is judged by.
"""
