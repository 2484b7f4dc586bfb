"""Fuses the nodes of quantised graphs: bytes in, bytes out, with the same bits as node by node.

A graph in QDQ form dequantises before every node and quantises after it:

    DequantizeLinear -> Conv -> Relu -> QuantizeLinear -> DequantizeLinear -> Add -> ...

- `sums`: a narrow sum takes the bytes before DequantizeLinear, and ends with QuantizeLinear;
- `tables`: element-wise nodes in between are functions of one or two bytes, looked up in a table;
- `moves`: nodes that only move elements move bytes.

`fusion` puts them together. Observers see every node, so they are given the graph as it is.
"""
