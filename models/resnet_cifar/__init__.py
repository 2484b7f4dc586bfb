"""ResNets for small images (20, 32, 44, 56 ... layers)."""
