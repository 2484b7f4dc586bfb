"""Tries changes to a model and to how onnxruntime runs it, and keeps what makes it faster.

findings   what a profile tells of the model, on which each change decides whether it applies
changes/   a module for each change that can be tried
setup      a model, its inputs and the settings of onnxruntime; a change makes one of another
bench      measures setups side by side, by the turns of a comparison
search     which changes to try together, and which to keep
plan       what was chosen: written, read, and applied again
"""
