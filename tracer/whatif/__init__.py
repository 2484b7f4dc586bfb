"""How a network would fare in narrower accumulators: sweeps over widths, and searches for them."""
