"""A small language model over bytes, built as GPT-2 is."""
