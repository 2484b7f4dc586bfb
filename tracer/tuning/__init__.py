"""Tries changes to a model and to how onnxruntime runs it, and keeps what makes it faster.

changes/   what can be tried, and what a profile tells of the model: by it a change decides
           whether it applies
setup      a model, its inputs and the settings of onnxruntime; a change makes one of another
candidates measures setups side by side, by the turns of a comparison
search     which changes to try together, and which to keep
plan       what was chosen: written, read, and applied again
"""
