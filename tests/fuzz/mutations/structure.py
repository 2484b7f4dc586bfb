"""Mutations of how a model is put together: edges, nodes, bodies, functions."""

from __future__ import annotations

from random import Random

import onnx
from onnx import TensorProto, helper

from tests.fuzz.mutations import extremes
from tests.fuzz.mutations.graph_parts import graphs, names, nodes, picked


def edge(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Reads another tensor."""
    graph = _with_nodes(random, model)
    node = picked(random, [node for node in graph.node if node.input])
    node.input[random.randrange(len(node.input))] = random.choice(names(graph))


def inputs(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Leaves out, adds or turns around inputs of a node."""
    graph = _with_nodes(random, model)
    node = random.choice(graph.node)
    match random.randrange(3):
        case 0 if node.input:
            del node.input[random.randrange(len(node.input)) :]
        case 1:
            turned = list(node.input)[::-1]
            del node.input[:]
            node.input.extend(turned)
        case _:
            node.input.extend([random.choice(names(graph))] * random.choice((1, 1, 2, 50)))


def outputs(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Leaves out or adds outputs of a node, or gives one the name of another tensor."""
    graph = _with_nodes(random, model)
    node = random.choice(graph.node)
    match random.randrange(3):
        case 0 if node.output:
            del node.output[-1]
        case 1 if node.output:
            node.output[random.randrange(len(node.output))] = random.choice(names(graph))
        case _:
            node.output.append(f"more{random.randrange(100)}")


def double_node(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Repeats a node; its result goes to the repetition, or nowhere."""
    graph = _with_nodes(random, model)
    node = random.choice(graph.node)
    copied = onnx.NodeProto.FromString(node.SerializeToString())
    if random.random() < 0.8:
        for place, result in enumerate(copied.output):
            copied.output[place] = f"{result}_again"
        if copied.input and node.output and random.random() < 0.5:
            copied.input[0] = node.output[0]
    _insert(graph, copied, random.randint(0, len(graph.node)) if random.random() < 0.2 else None)


def delete_node(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    graph = _with_nodes(random, model)
    del graph.node[random.randrange(len(graph.node))]


def shuffle_nodes(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    graph = _with_nodes(random, model)
    order = list(graph.node)
    random.shuffle(order)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in order]
    del graph.node[:]
    graph.node.extend(copies)


def graft_node(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Adds a node of another model, which reads tensors of this one."""
    graph = _with_nodes(random, model)
    grafted = onnx.NodeProto.FromString(picked(random, nodes(other)).SerializeToString())
    for place, name in enumerate(grafted.input):
        grafted.input[place] = random.choice(names(graph)) if name else ""
    for place, name in enumerate(grafted.output):
        grafted.output[place] = f"grafted_{place}" if name else ""
    _insert(graph, grafted, None)
    if grafted.output:
        model.graph.output.add(name=grafted.output[0])
        element = random.choice((TensorProto.FLOAT, TensorProto.INT64))
        model.graph.output[-1].type.tensor_type.elem_type = element


def operator(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Replaces an operator, and keeps its inputs and attributes."""
    picked(random, nodes(model)).op_type = picked(random, nodes(other)).op_type


def fixed_input(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes an input of the model a weight of extreme values, as a shape or an axis may be."""
    place = random.randrange(len(model.graph.input)) if model.graph.input else 0
    value = picked(random, model.graph.input)
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    kind = value.type.tensor_type.elem_type
    count = 1
    for size in dims:
        count *= size
    if not 0 < count < 5_000 or kind not in (TensorProto.FLOAT, TensorProto.INT64):
        return
    draw = extremes.floating if kind == TensorProto.FLOAT else extremes.integer
    filled = (
        [draw(random)] * count if random.random() < 0.5 else [draw(random) for _ in range(count)]
    )
    model.graph.initializer.append(helper.make_tensor(value.name, kind, dims, filled))
    del model.graph.input[place]


def more_outputs(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes an inner tensor an output of the model, without a shape."""
    name = picked(random, [each for each in names(model.graph) if each])
    model.graph.output.add(name=name)
    model.graph.output[-1].type.tensor_type.elem_type = random.choice((1, 7))


def body(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Exchanges a body with another one, or puts a node into an If."""
    every = graphs(model)
    if len(every) > 2 and random.random() < 0.7:
        copied = picked(random, every[1:]).SerializeToString()  # it may contain the other
        picked(random, every[1:]).ParseFromString(copied)
        return
    graph = _with_nodes(random, model)
    place = random.randrange(len(graph.node))
    inner = onnx.NodeProto.FromString(graph.node[place].SerializeToString())
    results = [onnx.ValueInfoProto(name=name) for name in inner.output]
    both = helper.make_graph([inner], "branch", [], results)
    flag = random.choice(names(graph))
    wrapped = helper.make_node("If", [flag], list(inner.output), then_branch=both, else_branch=both)
    graph.node[place].CopyFrom(wrapped)


def loop(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Runs a node in a Loop, on its own result."""
    graph = _with_nodes(random, model)
    node = picked(random, [node for node in graph.node if node.input and node.output])
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    start, result = inner.input[0], inner.output[0]
    inner.input[0], inner.output[0] = "carried", "next"
    for place in range(1, len(inner.output)):
        inner.output[place] = f"inner{place}"
    go_on = helper.make_node("Identity", ["go"], ["goes_on"])
    given = [("trip", TensorProto.INT64), ("go", TensorProto.BOOL), ("carried", TensorProto.FLOAT)]
    made = [("goes_on", TensorProto.BOOL), ("next", TensorProto.FLOAT)]
    step = helper.make_graph(
        [go_on, inner], "step",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in given],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in made],
    )  # fmt: skip
    trips = helper.make_tensor("", TensorProto.INT64, [], [random.choice((0, 1, 3, 1 << 62, -1))])
    graph.initializer.add().CopyFrom(trips)
    graph.initializer[-1].name = "trips"
    node.CopyFrom(helper.make_node("Loop", ["trips", "", start], [result], body=step))


def function(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes a node a call of a function that contains it, once or twice."""
    graph = _with_nodes(random, model)
    node = random.choice(graph.node)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    given, made = [f"i{n}" for n in range(len(inner.input))], list(inner.output)
    calls = [helper.make_node(inner.op_type, given, made, domain=inner.domain)]
    calls[0].attribute.extend(inner.attribute)
    if random.random() < 0.2:
        calls.append(helper.make_node("F", given, [f"{name}_deep" for name in made], domain="f"))
    imports = [helper.make_opsetid(each.domain, each.version) for each in model.opset_import]
    kept = imports if random.random() < 0.8 else [helper.make_opsetid("", random.randint(1, 26))]
    model.functions.append(helper.make_function("f", "F", given, made, calls, kept))
    node.CopyFrom(helper.make_node("F", list(inner.input), made, inner.name, domain="f"))
    model.opset_import.append(helper.make_opsetid("f", 1))


def forget_shapes(random: Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Removes what is declared of inner tensors and outputs, which other mutations contradict."""
    for graph in graphs(model):
        del graph.value_info[:]
        for value in graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")


MUTATIONS = (
    edge, edge, inputs, outputs, double_node, delete_node, shuffle_nodes, graft_node, graft_node,
    operator, operator, fixed_input, fixed_input, fixed_input, more_outputs, body, loop, function,
    forget_shapes,
)  # fmt: skip


def _with_nodes(random: Random, model: onnx.ModelProto) -> onnx.GraphProto:
    return picked(random, [graph for graph in graphs(model) if graph.node])


def _insert(graph: onnx.GraphProto, node: onnx.NodeProto, place: int | None) -> None:
    """Inserts a node; None for the end."""
    after = [] if place is None else list(graph.node)[place:]
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in after]
    if place is not None:
        del graph.node[place:]
    graph.node.extend([node, *copies])
