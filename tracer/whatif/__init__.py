"""Evaluates a network in narrower accumulators: sweeps widths, and searches the narrowest.

How `tracer.api.whatif` answers:

1. `graph_variants`: the quantised graph, and copies whose weights and activations have fewer bits.
2. `width_plan`: the widths to try for each node; some nodes may be pinned to a width.
3. `variants`: runs each graph in each accumulator. `cache_key` names stored evaluations.
4. `evaluation.Evaluator`: score and overflows at any widths. It cuts the data into `shards`, which
   the workers of a pool run (`jobs`, `shard_runs`), and merges what they tell. A worker runs its
   shards once in wide accumulators; `checkpoints`, `array_spill` and `stored_batches` hold what
   later runs reuse.
5. `sweep`: evaluates every width, then asks `search`; `evaluation_cache` computes nothing twice.
6. `metric_scores` and `energy_cost`: what an evaluation is judged by.
"""
