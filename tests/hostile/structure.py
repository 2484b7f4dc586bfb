"""Models of hostile structure: many nodes, deep bodies, functions that call each other."""

from itertools import pairwise

from onnx import TensorProto, helper

from tests.hostile.corpus import case, model, relu, value


@case("2,000 inputs of a Sum")
def _():
    return model([helper.make_node("Sum", ["x"] * 2_000, ["y"])], [value("x")], [value("y")])


@case("2,000 outputs of a Split")
def _():
    names = [f"y{i}" for i in range(2_000)]
    node = helper.make_node("Split", ["x"], names, num_outputs=2_000)
    return model([node], [value("x", [2_000])], [value("y0", [1])])


@case("1,200 Identity in a row")
def _():
    """More than Python's calls may be deep, behind an input whose sizes are open."""
    nodes = [helper.make_node("Identity", [f"t{i}"], [f"t{i + 1}"]) for i in range(1_200)]
    ends = [value(name, ["N", "L"]) for name in ("t0", "t1200")]
    return model(nodes, ends[:1], ends[1:])


def _function(name, called, times):
    """A function that calls another `times` times in a row."""
    names = ["a", *(f"t{i}" for i in range(times - 1)), "b"]
    pairs = pairwise(names)
    domain = "" if called == "Relu" else "f"
    nodes = [helper.make_node(called, [a], [b], domain=domain) for a, b in pairs]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, opsets)


def _calling(*functions, inputs=("x",), outputs=("y",)):
    last = functions[-1].name
    node = helper.make_node(last, inputs, outputs, "call", domain="f")
    return model([node], [value("x")], [value("y")], functions=functions, domains=["f"])


def _doubling(depth):
    names = ["Relu", *(f"F{i}" for i in range(depth))]
    return _calling(*(_function(b, a, 2) for a, b in pairwise(names)))


case("functions that double 31 times")(lambda: _doubling(31))
case("functions that double 22 times")(lambda: _doubling(22))
case("functions that double 1,000 times")(lambda: _doubling(1000))
case("a function that calls itself")(lambda: _calling(_function("F", "F", 1)))
case("functions that call each other")(
    lambda: _calling(_function("F", "G", 1), _function("G", "F", 1))
)
case("a call with too many inputs")(
    lambda: _calling(_function("F", "Relu", 1), inputs=("x", "x", "x"))
)
case("a call with too many outputs")(
    lambda: _calling(_function("F", "Relu", 1), outputs=("y", "z", "w"))
)
case("a call without inputs")(lambda: _calling(_function("F", "Relu", 1), inputs=()))
case("a function that is there twice")(
    lambda: _calling(_function("F", "Relu", 1), _function("F", "Relu", 2))
)


@case("a call with too many inputs in a body")
def _():
    inner = helper.make_node("F", ["x", "x"], ["t"], domain="f")
    body = helper.make_graph([inner], "b", [], [value("t")])
    other = helper.make_graph([helper.make_node("Relu", ["x"], ["e"])], "c", [], [value("e")])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=other)
    return model(
        [node], [value("x"), value("flag", [], TensorProto.BOOL)], [value("y")],
        functions=[_function("F", "Relu", 1)], domains=["f"],
    )  # fmt: skip


def _nested(depth):
    """If in If, `depth` deep."""
    made = relu([2, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["r"])], "in", [], [value("r")])
    for level in range(depth):
        name = f"o{level}"
        node = helper.make_node("If", ["flag"], [name], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], f"g{level}", [], [value(name)])
    del made.graph.node[:], made.graph.output[:]
    made.graph.node.extend(graph.node)
    made.graph.output.extend(graph.output)
    made.graph.input.append(value("flag", [], TensorProto.BOOL))
    return made


case("10 levels of If")(lambda: _nested(8))


def _lonely(nodes, inputs=("x",)):
    return model(nodes, [value(name) for name in inputs], [value("y")])


node = helper.make_node
GRAPHS = {
    "a tensor written twice": [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])],
    "a cycle": [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]),
                node("Relu", ["b"], ["y"])],
    "nodes in the wrong order": [node("Relu", ["h"], ["y"]), node("Relu", ["x"], ["h"])],
    "a tensor nobody computes": [node("Relu", ["nothing"], ["y"])],
    "an operator without outputs": [node("Relu", ["x"], [])],
    "an operator with too many outputs": [node("Relu", ["x"], ["y", "z"])],
    "an operator with too many inputs": [node("Relu", ["x", "x"], ["y"])],
    "an operator without inputs": [node("Relu", [], ["y"])],
    "an unknown operator": [node("Frobnicate", ["x"], ["y"])],
    "an unknown domain": [node("Relu", ["x"], ["y"], domain="nowhere")],
    "an empty input of Sum": [node("Sum", ["x", "", "x"], ["y"])],
    "an empty input of Add": [node("Add", ["x", ""], ["y"])],
    "no nodes": [],
}  # fmt: skip
for _name, _nodes in GRAPHS.items():
    case(_name)(lambda nodes=_nodes: _lonely(nodes))


@case("two inputs of one name")
def _():
    return model([node("Relu", ["x"], ["y"])], [value("x"), value("x")], [value("y")])


@case("an input without a type")
def _():
    made = relu([2])
    made.graph.input[0].ClearField("type")
    return made


@case("an attribute twice")
def _():
    made = model([node("Softmax", ["x"], ["y"], axis=0)], [value("x")], [value("y")])
    made.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    return made


@case("an attribute of another type")
def _():
    return model([node("Softmax", ["x"], ["y"], axis="zero")], [value("x")], [value("y")])


@case("a reference to no attribute")
def _():
    made = model([node("Softmax", ["x"], ["y"], axis=0)], [value("x")], [value("y")])
    made.graph.node[0].attribute[0].ref_attr_name = "gone"
    return made
