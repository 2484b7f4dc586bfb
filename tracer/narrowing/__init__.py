"""Makes a quantised network fit narrow accumulators, for any input.

    layers    products of quantised activations and stored weights, as matrices
    samples   what these products read on calibration data
    measures  what can be changed: one module each, found by name
    rounding  rounds weights within the limit of an accumulator
    editing   writes the changed products into the graph
    narrow    does all of it, and returns the graph and a row for each product

The result is an ordinary ONNX graph: any runtime computes it. `tracer.accumulators` tells
afterwards, from the stored weights alone, how many bits its sums need.
"""
