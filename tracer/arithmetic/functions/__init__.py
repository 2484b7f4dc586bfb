"""Functions as a runtime evaluates them: arrays in, arrays out, equal in all bits."""
