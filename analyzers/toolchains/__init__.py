"""Widths of accumulators as the toolchains for FPGAs configure them.

    products   the products of a model, with the names that qonnx gives their nodes
    finn       FINN's configuration of nodes: `accDataType`
    hls4ml     hls4ml's configuration of layers: `Precision: accum`

Both toolchains read QONNX models and number the nodes of each operator in the order of the graph.
"""
