"""Counting rules, one file per family of operators; the registry imports every file."""
