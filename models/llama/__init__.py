"""A small language model over bytes, built as Llama is."""
