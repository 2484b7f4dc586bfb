"""The arithmetic of other runtimes, revealed by probes and replayed bit for bit."""
