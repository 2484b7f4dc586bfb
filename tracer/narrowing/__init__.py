"""Makes a quantised network fit narrow accumulators, for any input or for such data.

    requirement  what sums must fit: widths, registers, and for which inputs
    layers       what sums: layers with stored weights, and plain sums without
    narrow       goes through the graph with the calibration data, node by node; or moves it to
                 powers of two instead of widths, so that no float operation rounds
    samples      what a node reads in the narrowed model, and should return; how far its partial
                 sums reach, and orders that keep them small
    measures     what can be changed in layers, and in sums without weights
    fitting      weights within the limits of registers, by `rounding`
    fragment     the nodes that take the place of a node
    attempts     narrows to a width, dearer where needed, and scores it on other data

The result is an ordinary ONNX graph: any runtime computes it. `tracer.accumulators` tells
afterwards, from the stored weights alone, how many bits its sums need.
"""
