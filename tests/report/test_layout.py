"""The drawing of a model: what must hold for every one, computed here from its topology alone."""

import random
from collections import Counter, defaultdict
from itertools import pairwise, takewhile
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_night
from tests.graphs import BRANCHES, residual
from tests.nets import encoder, mobilenet
from tracer.analyzers.views.report.layout import MOST_CHILDREN, MOST_NODES, laid_out
from tracer.graph import loading
from tracer.records.model_info import Topology

SHIPPED = sorted((Path(__file__).parents[2] / "models").rglob("*.onnx"))
NODE, MODULE, CONSECUTIVE, REPEATED = range(4)
OUTSIDE = -1


class Drawing:
    """A layout with its children and edges by box."""

    def __init__(self, topology):
        self.topology = topology
        self.layout = laid_out(topology)
        self.boxes, self.edges = self.layout.boxes, self.layout.edges
        self.children = defaultdict(list)
        for box, parent in enumerate(self.boxes.parent[1:], 1):
            self.children[parent].append(box)
        self.box_of = {node: box for box, node in enumerate(self.boxes.node) if node >= 0}
        columns = (self.edges.parent, self.edges.source, self.edges.target, self.edges.points)
        self.points = {tuple(edge): points for *edge, points in zip(*columns, strict=True)}

    def around(self, node):
        """The box of a node and those around it, but the whole model."""
        box = self.box_of[node]
        while box:
            yield box
            box = self.boxes.parent[box]

    def right(self, box):
        return self.boxes.x[box] + self.boxes.w[box]

    def bottom(self, box):
        return self.boxes.y[box] + self.boxes.h[box]


def visible(owners, around, producer, node):
    """Whether a node may read another: in its graph or in one around it, and made before."""
    return any(owners[at] == owners[producer] and producer < at for at in (node, *around))


@st.composite
def topologies(draw):
    count = draw(st.integers(0, 30))
    paths = st.sampled_from([None, "", *"ab", "a.0", "a.1", "a.2", "a.0.c", "b.c.d", "a..", "x.y"])
    owners, producers, chains = [], [], []
    for node in range(count):
        owner = draw(st.one_of(st.none(), st.integers(0, max(node - 1, 0)))) if node else None
        owners.append(owner if draw(st.integers(0, 3)) == 0 else None)
        owner = owners[node]
        chains.append(() if owner is None else (owner, *chains[owner]))
        seen = [each for each in range(node) if visible(owners, chains[node], each, node)]
        wanted = draw(st.sets(st.sampled_from(seen), max_size=3)) if seen else set()
        producers.append(tuple(sorted(wanted)))
    readers = st.sets(st.integers(0, count - 1), max_size=4).map(lambda each: tuple(sorted(each)))
    makers = [node for node in range(count) if owners[node] is None]
    return Topology(
        nodes=tuple(f"n{node}" for node in range(count)),
        op_types=tuple(draw(st.sampled_from(["Conv", "Relu", "Add"])) for _ in range(count)),
        modules=tuple(draw(paths) for _ in range(count)),
        producers=tuple(producers),
        owners=tuple(owners),
        inputs={"x": draw(readers) if count else ()},
        outputs={"y": draw(st.sampled_from(makers)) if count else None},
    )


def network(count, seed, modules=8):
    """A random network: mostly a chain, with skips, and with modules that it comes back to."""
    chance = random.Random(seed)
    producers, paths = [], []
    path = "m0"
    for node in range(count):
        reads = {node - 1} if node and chance.random() < 0.95 else set()
        if node > 4 and chance.random() < 0.3:
            reads.add(chance.randrange(max(node - 40, 0), node))
        producers.append(tuple(sorted(reads)))
        if modules and chance.random() < 0.2:
            path = f"m{chance.randrange(modules)}.{chance.randrange(4)}.{chance.randrange(3)}"
        paths.append(path if modules else None)
    ops = [chance.choice(["Conv", "Relu"]) for _ in range(count)]
    return of_main_graph(ops, paths, producers)


def of_main_graph(ops, paths, producers):
    count = len(ops)
    return Topology(
        nodes=tuple(f"n{node}" for node in range(count)),
        op_types=tuple(ops),
        modules=tuple(paths),
        producers=tuple(producers),
        owners=(None,) * count,
        inputs={"x": (0,)},
        outputs={"y": count - 1},
    )


def blocks(count, module="layers.{}"):
    """Conv, Relu, Add with a skip, again and again."""
    producers = [()]
    for node in range(1, 3 * count):
        is_sum = node % 3 == 2
        producers.append((node - 3, node - 1) if is_sum and node > 2 else (node - 1,))
    paths = [module.format(node // 3) for node in range(3 * count)]
    return of_main_graph(["Conv", "Relu", "Add"] * count, paths, producers)


def expected_edges(drawing):
    """Parent, source and target of every edge that a reading of the topology asks for."""
    topology, parent = drawing.topology, drawing.boxes.parent
    edges = set()
    for reader, producers in enumerate(topology.producers):
        for producer in producers:
            edges |= way(drawing, producer, reader)
    for reader in {node for readers in topology.inputs.values() for node in readers}:
        edges |= {(parent[box], OUTSIDE, box) for box in drawing.around(reader)}
    for maker in set(topology.outputs.values()) - {None}:
        edges |= {(parent[box], box, OUTSIDE) for box in drawing.around(maker)}
    read = {producer for producers in topology.producers for producer in producers}
    for node, owner in enumerate(topology.owners):
        if owner is not None and node not in read:  # a result of the body
            inside = takewhile(
                lambda box, end=drawing.box_of[owner]: box != end, drawing.around(node)
            )
            edges |= {(parent[box], box, OUTSIDE) for box in inside}
    return edges


def way(drawing, producer, reader):
    """The edges by which data leave the boxes around a node, and enter those around another."""
    parent = drawing.boxes.parent
    out, into = list(drawing.around(producer)), list(drawing.around(reader))
    shared = {parent[box] for box in out} & {parent[box] for box in into}
    leaving = [box for box in out if parent[box] not in shared]
    entering = [box for box in into if parent[box] not in shared]
    source, target = out[len(leaving)], into[len(entering)]
    edges = {(parent[box], box, OUTSIDE) for box in leaving}
    edges |= {(parent[box], OUTSIDE, box) for box in entering}
    return edges | {(parent[target], source, target)}


def check_boxes(drawing):
    boxes, topology = drawing.boxes, drawing.topology
    assert Counter(node for node in boxes.node if node >= 0) == Counter(range(len(topology.nodes)))
    for box, parent in enumerate(boxes.parent):
        assert parent < box and (box == 0) == (parent == -1)
        inside = drawing.children[box]
        assert len(inside) <= MOST_CHILDREN
        assert boxes.count[box] == sum(boxes.count[c] for c in inside) + (boxes.node[box] >= 0)
        assert (boxes.node[box] >= 0) == (boxes.kind[box] == NODE)
        assert (boxes.inner_w[box] > 0) == (boxes.inner_h[box] > 0) == bool(inside)
    for node, owner in enumerate(topology.owners):
        outer = [boxes.node[box] for box in list(drawing.around(node))[1:]]
        assert next((each for each in outer if each >= 0), None) == owner


def check_places(drawing):
    boxes = drawing.boxes
    for parent, inside in drawing.children.items():
        bands = defaultdict(list)
        for box in inside:
            bands[boxes.band[box]].append(box)
            assert boxes.x[box] >= 0 and drawing.right(box) <= boxes.inner_w[parent]
            assert boxes.y[box] >= 0 and drawing.bottom(box) <= boxes.inner_h[parent]
        assert sorted(bands) == list(range(len(bands)))
        below = 0
        for _, band in sorted(bands.items()):
            (top,) = {boxes.y[box] for box in band}
            assert top > below
            below = max(drawing.bottom(box) for box in band)
            band.sort(key=lambda box: boxes.x[box])
            assert all(drawing.right(a) < boxes.x[b] for a, b in pairwise(band))


def check_edges(drawing):
    boxes = drawing.boxes
    assert len(drawing.points) == len(drawing.edges.parent)
    assert set(drawing.points) == expected_edges(drawing)
    for (parent, source, target), flat in drawing.points.items():
        last = max(boxes.band[box] for box in drawing.children[parent])
        first_band = -1 if source == OUTSIDE else boxes.band[source] + 1
        end_band = last + 2 if target == OUTSIDE else boxes.band[target]
        assert first_band <= end_band
        points = list(zip(flat[::2], flat[1::2], strict=True))
        assert len(points) in (0, end_band - first_band)
        for band, (x, y) in enumerate(points, first_band):
            assert 0 <= x <= boxes.inner_w[parent]
            if band == -1 or band == last + 1:
                assert y == (0 if band == -1 else boxes.inner_h[parent])
                continue
            beside = [box for box in drawing.children[parent] if boxes.band[box] == band]
            assert not any(boxes.x[box] <= x <= drawing.right(box) for box in beside)
            assert any(boxes.y[box] <= y <= drawing.bottom(box) for box in beside)


def structure(drawing, box):
    """Operators and edges inside a box, whatever the names."""
    inside = drawing.children[box]
    place = {child: at for at, child in enumerate(inside)}
    links = {
        (place[a], place[b]) for p, a, b in drawing.points if p == box and OUTSIDE not in (a, b)
    }
    node = drawing.boxes.node[box]
    op_type = drawing.topology.op_types[node] if node >= 0 else ""
    return op_type, tuple(structure(drawing, child) for child in inside), frozenset(links)


def repeated(drawing, box):
    """The blocks of a box that repeats, which is divided where there are many."""
    blocks = drawing.children[box]
    while len(blocks) < drawing.boxes.repeat[box]:
        assert all(drawing.boxes.kind[block] == CONSECUTIVE for block in blocks)
        blocks = [child for block in blocks for child in drawing.children[block]]
    return blocks


def check_folds(drawing):
    boxes = drawing.boxes
    for box, kind in enumerate(boxes.kind):
        assert (boxes.repeat[box] > 1) == (kind == REPEATED)
        if kind == REPEATED:
            blocks = repeated(drawing, box)
            assert boxes.repeat[box] == len(blocks)
            assert len({structure(drawing, block) for block in blocks}) == 1


def check_ends(drawing):
    top = {node: list(drawing.around(node))[-1] for node in drawing.box_of}
    inputs = {n: {top[r] for r in readers} for n, readers in drawing.topology.inputs.items()}
    outputs = {n: {top[m]} - {None} for n, m in drawing.topology.outputs.items() if m is not None}
    assert {name: set(each) for name, each in drawing.layout.inputs.items()} == inputs
    assert {n: set(each) for n, each in drawing.layout.outputs.items() if each} == outputs


def check(topology):
    drawing = Drawing(topology)
    check_boxes(drawing)
    check_places(drawing)
    check_edges(drawing)
    check_folds(drawing)
    check_ends(drawing)
    assert laid_out(topology) == drawing.layout
    return drawing


@given(topologies())
def test_a_drawing_tells_the_graph_and_nothing_overlaps(topology):
    check(topology)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_models(path):
    check(Topology.of(loading.open_model(path)))


@pytest.mark.parametrize(
    "make", [residual, encoder, mobilenet, lambda: onnx.parser.parse_model(BRANCHES)]
)
def test_graphs_without_modules_and_with_bodies(make):
    check(Topology.of(loading.from_proto(make())))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("modules", at_night([0, 1, 8, 300], but=[0, 8]))
def test_networks_of_a_thousand_nodes_are_divided(modules):
    drawing = check(network(1_500, modules, modules))
    assert modules or CONSECUTIVE in drawing.boxes.kind


@pytest.mark.parametrize("reads", [(), (0,)], ids=["apart", "split"])
def test_a_thousand_nodes_beside_each_other(reads):
    producers = [(), *[reads] * 1_000, tuple(range(1_001))]
    check(of_main_graph(["Split", *["Relu"] * 1_000, "Sum"], [None] * 1_002, producers))


def test_what_reads_all_before_it_is_drawn_without_waypoints_for_all():
    producers = [tuple(range(node)) for node in range(120)]
    drawing = Drawing(of_main_graph(["Concat"] * 120, [None] * 120, producers))
    check_places(drawing)
    check_edges(drawing)
    assert sum(map(len, drawing.edges.points)) < 2 * 6_000
    assert not all(drawing.edges.points)


def test_blocks_that_repeat_fold_and_others_do_not():
    drawing = check(blocks(12))
    (layers,) = drawing.children[0]
    assert (drawing.boxes.kind[layers], drawing.boxes.repeat[layers]) == (REPEATED, 12)
    topology = blocks(12)
    changed = of_main_graph(
        [*topology.op_types[:-2], "Gelu", "Add"], topology.modules, topology.producers
    )
    drawing = check(changed)
    folded, last = drawing.children[0]
    assert drawing.boxes.repeat[folded] == 11
    assert drawing.boxes.label[folded] == "0…10" and drawing.boxes.label[last] == "11"


def test_hundreds_of_repeated_blocks_fold_and_divide():
    drawing = check(blocks(420))
    (layers,) = drawing.children[0]
    assert drawing.boxes.repeat[layers] == 420
    assert {drawing.boxes.kind[box] for box in drawing.children[layers]} == {CONSECUTIVE}


def test_sequences_that_no_module_names_fold():
    named = blocks(100)
    paths = [None] * len(named.nodes)
    drawing = check(of_main_graph(named.op_types, paths, named.producers))
    (folded,) = [box for box in drawing.children[0] if drawing.boxes.kind[box] == REPEATED]
    assert drawing.boxes.repeat[folded] >= 98
    block = repeated(drawing, folded)[0]
    assert [drawing.boxes.label[box] for box in drawing.children[block]] == ["Conv", "Relu", "Add"]


@pytest.mark.parametrize("count", [90, 1_000])
def test_nodes_that_repeat_in_a_long_row_fold(count):
    chain = of_main_graph(["Relu"] * count, [None] * count, [(), *((n,) for n in range(count - 1))])
    assert max(check(chain).boxes.repeat) >= count - 1
    reads = [(), *[(0,)] * count, tuple(range(1, count + 1))]
    beside = of_main_graph(["Split", *["Relu"] * count, "Sum"], [None] * (count + 2), reads)
    assert max(check(beside).boxes.repeat) == count


def test_the_main_way_of_a_residual_block_is_straight_and_the_skip_is_beside_it():
    drawing = Drawing(blocks(2, "m{}"))
    for parent in drawing.children[0]:
        inside = drawing.children[parent]
        assert [drawing.boxes.label[box] for box in inside] == ["Conv", "Relu", "Add"][
            : len(inside)
        ]
        (middle,) = {drawing.boxes.x[box] + drawing.boxes.w[box] // 2 for box in inside}
        points = drawing.points.get((parent, OUTSIDE, inside[-1]), ())
        assert all(abs(x - middle) > 10 for x in points[2::2])
    assert points


def test_a_module_that_data_leave_and_enter_again_is_several_boxes():
    paths = ["conv1", "act", "conv2", "act", "conv3", "act"]
    topology = of_main_graph(["Conv", "Relu"] * 3, paths, [(), *((n,) for n in range(5))])
    drawing = check(topology)
    assert [drawing.boxes.node[box] for box in drawing.children[0]] == list(range(6))


def test_constants_stand_right_above_their_readers():
    producers = [(), (), (0,), (2,), (1, 3)]
    topology = of_main_graph(["Conv", "Constant", "Relu", "Relu", "Add"], [None] * 5, producers)
    drawing = check(topology)
    band = {node: drawing.boxes.band[box] for node, box in drawing.box_of.items()}
    assert band == {0: 0, 2: 1, 3: 2, 1: 2, 4: 3}


def test_the_bodies_of_an_if_are_boxes_inside_it():
    topology = Topology.of(loading.from_proto(onnx.parser.parse_model(BRANCHES)))
    drawing = check(topology)
    choice, loop = drawing.children[0]
    labels = [drawing.boxes.label[box] for box in drawing.children[choice]]
    assert labels == ["then_branch", "Neg else_branch"]
    assert len(drawing.children[loop]) == 3


@pytest.mark.parametrize(
    "module",
    ["." * 5_000, "a" * 1_000_000, "a\u202eb\x1b[2J\n<script>.c", ".".join("abc" * 2_000), " "],
    ids=["dots", "long", "hostile", "deep", "blank"],
)
def test_hostile_names_of_modules(module):
    paths = [module, f"{module}.x", f"{module}.y", None]
    drawing = check(of_main_graph(["Conv"] * 4, paths, [(), (0,), (1,), (0, 2)]))
    assert all(len(label) <= 24 and label.isprintable() for label in drawing.boxes.label)


def test_an_empty_model_and_a_node():
    assert laid_out(Topology((), (), (), (), (), {"x": ()}, {"x": None})).boxes.count == (0,)
    assert check(of_main_graph(["Relu"], [None], [()])).boxes.count == (1, 1)


def test_too_many_nodes_are_not_drawn():
    count = MOST_NODES + 1
    assert laid_out(of_main_graph(["Relu"] * count, [None] * count, [()] * count)) is None
