"""Makes a quantised network fit narrow accumulators, for any input or for such data.

    need         what sums must fit: registers, and for which inputs
    layers       products of quantised activations and stored weights, as matrices
    plain_sums   sums without weights: products of activations, poolings, reductions
    walk         goes through the graph with the calibration data, node by node
    samples      what a node reads in the narrowed model, and should return
    measures     what can be changed: one module each, found by name
    fitting      weights within the limits of registers, by `moments`, `rounding` and `reach`
    fragment     the nodes that take the place of a node, which `writing` makes of a layer
    narrow       chooses a measure for each node, and returns the graph
    attempts     narrows to a width, dearer where needed, and scores it on other data

The result is an ordinary ONNX graph: any runtime computes it. `tracer.accumulators` tells
afterwards, from the stored weights alone, how many bits its sums need.
"""
