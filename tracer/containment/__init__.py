"""Runs commands and calls in a child process, so that a crash of native code takes nothing down."""
