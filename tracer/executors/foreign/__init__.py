"""Profiles that other programs recorded, with onnxruntime's or torch's profiler, as runs."""
