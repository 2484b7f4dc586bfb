"""The views of comparisons and of batch sweeps."""
