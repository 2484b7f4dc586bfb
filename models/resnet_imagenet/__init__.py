"""ResNets for large images: 18, 34, 50, 101, 152; plain, bottleneck and large blocks."""
