"""Compiled kernels that measure this machine."""
