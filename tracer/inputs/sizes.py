"""The dimensions of a model's inputs: what each is called, which is the batch, and their sizes.

An open dimension is called by its symbol, or by its place, `INPUT:AXIS`. Sizes that neither the
model nor the user has set are chosen here. The rules stand in the order of trust: weights and
attention demand a size; names, types and the nodes that read the input tell what a dimension is.
Of the sizes that are usual for that, the first at which the shapes in the model fit is chosen.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tracer import shapes
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph import operators, shape_inference, tensor_type
from tracer.graph.model import Address, Model
from tracer.inputs import demands
from tracer.text import CHOSEN, suggest

Declared: TypeAlias = Mapping[str, tuple[tensor_type.Dim, ...]]
"""The shape of each tensor input that has a rank, by name."""
_BATCH = re.compile(r"(?i)^(n|b|bs|batch.*|.*batch(_?size)?)$")
_OF_A_BATCH = re.compile(r"(?i)batch")
_GENERATED = re.compile(r"^(s\d+|unk__\d+|.*_dynamic_axes_\d+)$")
"""Symbols that torch and tf2onnx make up, another one for each dimension."""
_RANK_OF_STEPS = 3
"""A recurrent layer reads [steps, batch, features]."""
_MOST_DIRECTIONS = 8
"""Layers times directions that the state of a recurrent network begins with."""
_MOST_NODES = 5_000
"""Inference on a larger model takes seconds: its usual sizes are not tried out."""
_COMMON = (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 416, 448, 512, 576, 640, 768, 1024)
"""Networks halve images and sequences up to five times; few inputs are longer than 1024."""
_COLOURS, _SPEAKERS = frozenset({1, 3, 4}), frozenset({1, 2})
"""Channels of an image, and of a sound."""
_BEFORE_FEATURES = frozenset({
    "Cast", "Concat", "Div", "Identity", "Mul", "Pad", "Reshape", "Slice", "Squeeze", "Sub",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that prepare a sound before the first node that computes features of it."""
_MISFIT = re.compile(r"\(op_type:(?P<op>\w+)(?:, node name: (?P<node>.*?))?\): \[\w+\] (?P<why>.*)")
"""The first fault that onnx's inference lists."""
_MASK, _NEW = re.compile(r"(?i)mask"), re.compile(r"(?i)^input_?(ids|embeds)")
_OF_CACHE = re.compile(r"(?i)past|cache|present|(^|[._/])(keys?|values?)([._/]|$)")
_RANKED = {
    name: product.weights
    for name, product in operators.PRODUCTS.items()
    if product.kind not in (operators.ATTENTION, operators.OTHER)
    and product.weights is not None
    and "MatMul" not in name  # which takes any rank
}
"""Operators whose input 0 has the rank of their weights, and which input has these."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A shape of each input, and the chosen sizes in it, by what the dimensions are called.

    `notes` says what was chosen.
    """

    shapes: Mapping[str, tuple[int, ...]]
    chosen: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usual:
    """What a dimension counts, and sizes to try: the usual one, then larger, then smaller ones."""

    what: str
    sizes: tuple[int, ...]

    @classmethod
    def around(cls, what: str, usual: int, others: Sequence[int] = ()) -> "Usual":
        """Returns sizes that are common, and `others`, around the usual one."""
        sizes = sorted({*_COMMON, *others, 16, 8, 4, 2, 1} - {usual})
        smaller = [size for size in reversed(sizes) if size < usual]
        return cls(what, (usual, *(size for size in sizes if size > usual), *smaller))


IMAGE = Usual.around("image", 224, (299, 112, 56, 48, 28, 14, 7))
TOKENS = Usual.around("tokens", 128, (77, 50))
SEQUENCE = Usual.around("sequence", 128, (100, 1500, 3000))
OTHER = Usual.around("kind unknown", 16)
AUDIO = Usual("audio", (16000, 48000, 8000, 4096, 2048, *reversed(_COMMON), 16, 8, 4, 2, 1))
CHANNELS = Usual("channels", (3, 1, 4, 2, 8, 16, 32, 64))
PAST = Usual("past", (0, 1))

_NAMED = (
    # the name of a dimension, and what it counts
    (re.compile(r"(?i)past|cache"), PAST),
    (re.compile(r"(?i)seq|len|tok|time|step|frame"), SEQUENCE),
    (re.compile(r"(?i)^[hw]$|height|width|size|rows|cols"), IMAGE),
)


def label(declared: Declared, name: str, axis: int) -> str:
    """Returns what the open dimension `axis` of input `name` is called."""
    dim = declared[name][axis]
    return dim if isinstance(dim, str) else f"{name}:{axis}"


def open_places(declared: Declared) -> dict[str, tuple[str, int]]:
    """Returns the first place, input and axis, of each open dimension by what it is called."""
    places: dict[str, tuple[str, int]] = {}
    for name, shape in declared.items():
        for axis, dim in enumerate(shape):
            if not isinstance(dim, int):
                places.setdefault(label(declared, name, axis), (name, axis))
    return places


def sizes_of(model: Model, shapes: shape_inference.Shapes) -> dict[str, int]:
    """Returns the size of each open dimension where the inputs have these shapes."""
    return {
        called: shapes[name][axis]
        for called, (name, axis) in open_places(tensor_type.declared_shapes(model.inputs)).items()
        if name in shapes
    }


def batch_of(model: Model, shapes: shape_inference.Shapes) -> int | None:
    """Returns the size of the batch dimension; None for a model without one."""
    declared = tensor_type.declared_shapes(model.inputs)
    for name, axis in batch_axes(model, declared).items():
        if name in shapes and len(shapes[name]) > axis:
            return shapes[name][axis]
    leads = leading_axes(model, declared)
    return next(
        (s[leads[name]] for name, s in shapes.items() if len(declared.get(name, ())) > 1), None
    )


def leading_axes(model: Model, declared: Declared) -> dict[str, int]:
    """Returns the axis of each input that may count samples: 0, or 1 where steps come first."""
    return {
        name: int(len(shape) == _RANK_OF_STEPS and demands.is_read_in_steps(model, name))
        for name, shape in declared.items()
    }


def batch_axes(model: Model, declared: Declared) -> dict[str, int]:
    """Returns the batch axis of each input that has one.

    The batch is a symbol named like a batch, else the first leading symbol, and further ones like
    it: exporters give each input symbols of its own. An unnamed leading axis also counts as batch,
    and beside such inputs the unnamed axis 1 of a recurrent state.
    """
    leads = leading_axes(model, declared)
    symbols = [d for shape in declared.values() for d in shape if isinstance(d, str)]
    dims = [declared[name][axis] for name, axis in leads.items() if declared[name]]
    leading = [dim for dim in dims if isinstance(dim, str)]
    batches = {*[*filter(_BATCH.match, symbols), *leading][:1]}
    inner = {
        d
        for name, shape in declared.items()
        for axis, d in enumerate(shape)
        if axis != leads[name] or len(shape) == 1
    }
    for alike in (_GENERATED, _OF_A_BATCH):
        if any(map(alike.search, batches)):
            batches.update(each for each in leading if alike.search(each) and each not in inner)
    axes = {}
    for name, shape in declared.items():
        batch = next((axis for axis, dim in enumerate(shape) if dim in batches), None)
        if batch is not None:
            axes[name] = batch
        elif shape and shape[leads[name]] is None:
            axes[name] = leads[name]
    for name, shape in declared.items() if axes else ():
        match shape:  # of a recurrent network; without a batch elsewhere it may be [1, time, ...]
            case (int(first), None, _) if first <= _MOST_DIRECTIONS:
                axes[name] = 1
    return axes


def choose(model: Model, batch: int | None, dims: Mapping[str, int]) -> Sizes:
    """Returns the first of `choices`."""
    return next(choices(model, batch, dims))


def choices(model: Model, batch: int | None, dims: Mapping[str, int]) -> Iterator[Sizes]:
    """Yields sizes in the order to try them; there is always one.

    `dims` are sizes by symbol or `INPUT:AXIS`. Raises InputError for a name in `dims` that no
    dimension has, a batch if none is open, or an input whose rank nothing tells; UsageError if
    `dims` sizes the batch as well.
    """
    freedom = _Freedom.of(model, batch, dims)
    if not freedom.free or len(model.nodes) > _MOST_NODES:
        return (freedom.at(chosen) for chosen in freedom.candidates())
    return _fitting(model, freedom)


def require_fit(model: Model, shapes: shape_inference.Shapes) -> None:
    """Raises InputError where onnx finds that these inputs make shapes contradict each other."""
    if len(model.nodes) > _MOST_NODES:
        return
    found = _MISFIT.search(str(shape_inference.Trial(model).failure(shapes)))
    if found and shape_inference.Trial(model).fits({}):
        node = f" '{found['node']}'" if found["node"] else ""
        raise misfit(model, shapes, f"{found['op']}{node}: {found['why']}")


def misfit(model: Model, shapes: shape_inference.Shapes, why: str) -> InputError:
    """Returns the error of inputs that make shapes contradict each other; `why` has the node."""
    sized = ", ".join(f"{name}[{','.join(map(str, of))}]" for name, of in shapes.items())
    return InputError(
        f"{model.name} does not fit the inputs {sized}: {why}",
        "Set other sizes with --batch, --dim, --prefill or --past; --run has the shapes of a run.",
    )


@dataclass(frozen=True, slots=True)
class _Freedom:
    """What the model and the user leave free, by what the dimensions are called.

    `fixed` are sizes, `summed` are the terms of a dimension called `past + sequence`.
    """

    declared: Declared
    fixed: Mapping[str, int]
    free: Mapping[str, Usual]
    summed: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, model: Model, batch: int | None, dims: Mapping[str, int]) -> "_Freedom":
        """Raises the errors of `choices`."""
        declared = _with_ranks(model, dims)
        fixed = _given_sizes(model, declared, dims)
        axes = batch_axes(model, declared)
        batches = {label(declared, name, axis) for name, axis in axes.items()}
        if batch is not None:
            leads = leading_axes(model, declared)
            leading = {declared[name][at] for name, at in leads.items() if len(declared[name]) > 1}
            if not axes and leading != {batch}:
                sizes = ", ".join(str(size) for size in leading) or "absent"
                raise InputError(
                    f"{model.name}: the batch is {sizes}, not {batch}, and it is not symbolic",
                    "Export the model with a dynamic batch dimension.",
                )
            if batches & set(fixed):
                twice = min(batches & set(fixed))
                raise UsageError(f"'{twice}' is the batch: set the batch or the dim, not both")
        given = next((fixed[each] for each in batches if each in fixed), 1)
        fixed |= dict.fromkeys(batches - set(fixed), batch or given)
        places = open_places(declared)
        rest = [called for called in places if called not in fixed]
        free, summed = {}, {}
        for called in rest:
            terms = [term.strip() for term in called.split("+")]
            if len(terms) > 1 and all(t.isdecimal() or t in {*rest, *fixed} for t in terms):
                summed[called] = terms
            else:
                free[called] = _usual_sizes(model, declared, *places[called])
        for called in [each for each in free if _MASK.search(places[each][0])]:
            if places[called][1] == 1 and (terms := _attended(declared, called)):
                summed[called] = terms
                del free[called]
        return cls(declared, fixed, free, summed)

    def at(self, chosen: Mapping[str, int]) -> Sizes:
        """Returns all sizes where those of the free dimensions are `chosen`."""
        known = {**self.fixed, **chosen}
        for called, terms in self.summed.items():
            known[called] = sum(known[term] if term in known else int(term) for term in terms)
        sized, parts = dict[str, tuple[int, ...]](), []
        for name, shape in self.declared.items():
            labels = [label(self.declared, name, axis) for axis in range(len(shape))]
            dims = zip(shape, labels, strict=True)
            sized[name] = tuple(dim if isinstance(dim, int) else known[at] for dim, at in dims)
            kinds = dict.fromkeys(self.free[each].what for each in labels if each in self.free)
            if kinds:
                parts.append(f"{name}[{','.join(map(str, sized[name]))}] ({', '.join(kinds)})")
        options = shlex.join(w for at, n in chosen.items() for w in ("--dim", f"{at}={n}"))
        note = f"{CHOSEN}{', '.join(parts)}; change them with {options}"
        return Sizes(sized, chosen, (note,) if chosen else ())

    def candidates(self) -> Iterator[dict[str, int]]:
        """Yields sizes of the free dimensions: the usual ones, then all of them larger, smaller."""
        for turn in range(max((len(usual.sizes) for usual in self.free.values()), default=1)):
            yield {
                called: usual.sizes[min(turn, len(usual.sizes) - 1)]
                for called, usual in self.free.items()
            }


def _fitting(model: Model, freedom: _Freedom) -> Iterator[Sizes]:
    """Yields the candidates at which the shapes in the model fit; all of them if none does.

    Before each comes one with as many dimensions at their usual size as fit.
    """
    trial = shape_inference.Trial(model)

    def fits(at: Sizes) -> bool:  # the first finds most of what does not fit, and takes less time
        if not trial.fits(at.shapes) or not shapes.fits(model, at.shapes):
            return False
        try:
            shapes.check(model, at.shapes)
        except ModelError:
            return False
        return True

    seen: list[Mapping[str, int]] = []
    for chosen in freedom.candidates():
        if not fits(freedom.at(chosen)):
            continue
        usual = dict(chosen)
        for called in reversed(chosen):
            changed = usual | {called: freedom.free[called].sizes[0]}
            if changed != usual and fits(freedom.at(changed)):
                usual = changed
        for each in (usual, chosen):
            if each not in seen:
                seen.append(each)
                yield freedom.at(each)
    if not seen:
        yield from map(freedom.at, freedom.candidates())


def _given_sizes(model: Model, declared: Declared, dims: Mapping[str, int]) -> dict[str, int]:
    """Returns the sizes that `dims` sets, by what the open dimensions are called.

    A key is a symbol or `INPUT:AXIS`. Raises InputError for a key that names no open dimension,
    UsageError for two sizes of one dimension.
    """
    places = open_places(declared)
    sizes: dict[str, int] = {}
    for key, size in dims.items():
        name, _, place = key.rpartition(":")
        axis, shape = int(place) if place.isdecimal() else 0, declared.get(name, ())
        is_place = place.isdecimal() and axis < len(shape) and not isinstance(shape[axis], int)
        if key not in places and not is_place:
            listed = ", ".join(
                called if called == f"{owner}:{at}" else f"{called} ({owner}:{at})"
                for called, (owner, at) in places.items()
            )
            hint = "The sizes of its inputs are all fixed: leave --dim out."
            raise InputError(
                f"{model.name} has no open dimension '{key}'",
                f"{suggest(key, places)}Its open dimensions are {listed}." if places else hint,
            )
        called = key if key in places else label(declared, name, axis)
        if sizes.setdefault(called, size) != size:
            raise UsageError(f"'{called}' is set to both {sizes[called]} and {size}")
    return sizes


def _with_ranks(model: Model, dims: Mapping[str, int]) -> dict[str, tuple[tensor_type.Dim, ...]]:
    """Returns a shape of each tensor input, in their order; open where nothing is declared.

    `dims` may set each axis of an input, as in `x:0`, `x:1`. Raises InputError, with all that is to
    be set, for inputs whose rank nothing tells.
    """
    ranked: dict[str, tuple[tensor_type.Dim, ...]] = {}
    unknown = []
    for name, kind in tensor_type.declared_types(model.inputs).items():
        if kind is None:
            continue
        if kind.shape is not None:
            ranked[name] = kind.shape
            continue
        axes = {axis for owner, _, axis in (key.rpartition(":") for key in dims) if owner == name}
        is_given = axes == {str(axis) for axis in range(len(axes))}
        weights = (  # has the rank of the input that it meets
            demands.weight_shape(model, node, _RANKED[node.op_type])
            for node, position in demands.readers(model, ("", name))
            if position == 0 and node.op_type in _RANKED
        )
        rank = (len(axes) if is_given else 0) or len(next(filter(None, weights), ()))
        if rank:
            ranked[name] = (None,) * rank
        else:
            unknown.append(name)
    if unknown:
        names = ", ".join(f"'{name}'" for name in unknown)
        sizes = shlex.join(w for n in unknown for w in ("--dim", f"{n}:0=1", "--dim", f"{n}:1=16"))
        raise InputError(
            f"{names} of {model.name} declare{'s' * (len(unknown) == 1)} no shape",
            f"Set every axis: {sizes} and so on; or give values: --inputs FILE.npz.",
        )
    return ranked


def _attended(declared: Declared, mask: str) -> list[str]:
    """Returns the dimensions that a mask over all tokens is the sum of: those new, and the past.

    None without a cache, or where another input has the size of the mask.
    """
    labels = {
        (name, axis): str(dim) if isinstance(dim, int) else label(declared, name, axis)
        for name, shape in declared.items()
        for axis, dim in enumerate(shape)
    }
    tokens = [each for (name, axis), each in labels.items() if axis == 1 and _NEW.search(name)]
    past = [
        each
        for (name, axis), each in labels.items()
        if axis == 2 and len(declared[name]) == 4 and _OF_CACHE.search(name)
    ]
    alone = list(labels.values()).count(mask) == 1
    return [tokens[0], past[0]] if alone and tokens and past else []


def _usual_sizes(model: Model, declared: Declared, name: str, axis: int) -> Usual:
    """Returns what the open dimension `axis` of input `name` counts; the first rule decides."""
    shape, kind = declared[name], tensor_type.declared_types(model.inputs)[name]
    assert kind is not None
    demanded = demands.sizes_from_weights(model, name, len(shape))
    if axis in demanded:
        return Usual("weights", (demanded[axis],))
    heads = demands.sizes_from_attention(model, name) if len(shape) == 4 else {}
    if axis in heads:
        return Usual("heads", (heads[axis],))
    if _named(name if shape[axis] is None else shape[axis]) is PAST:
        return PAST
    if kind.dtype.startswith(("float", "bfloat")) and _is_sound(model, name, shape, axis):
        return AUDIO
    named = _named(shape[axis])
    if named is not None:
        return TOKENS if named is SEQUENCE and kind.dtype.startswith("int") else named
    if kind.dtype.startswith(("int32", "int64", "bool")):
        return TOKENS if len(shape) <= 2 else OTHER
    opened = [at for at, dim in enumerate(shape) if at and not isinstance(dim, int)]
    if len(shape) == 4 and opened in ([1], [2]) and axis in opened:
        joined = [
            (node.op_type, position, each.i % 4)
            for node, position in demands.readers(model, ("", name))
            for each in node.proto.attribute
        ]
        if _OF_CACHE.search(name) or joined == [("Concat", 0, axis)]:  # new tokens follow it
            return SEQUENCE
    if len(shape) == 4:  # channels are first unless they are last
        is_last = shape[3] in _COLOURS and shape[1] not in _COLOURS
        return IMAGE if axis in ((1, 2) if is_last else (2, 3)) else CHANNELS
    return SEQUENCE if len(shape) == 3 else OTHER


def _named(name: tensor_type.Dim) -> Usual | None:
    return next((usual for pattern, usual in _NAMED if pattern.search(str(name or ""))), None)


def _is_sound(model: Model, name: str, shape: tuple[tensor_type.Dim, ...], axis: int) -> bool:
    """Whether an axis is the last of [samples], [batch, samples] or [batch, 1 or 2, samples].

    The first nodes that compute features of a sound do so along one axis.
    """
    if not len(shape) - 1 == axis < 3 or (len(shape) == 3 and shape[1] not in _SPEAKERS):
        return False
    waiting: list[Address] = [("", name)]
    visited = set(waiting)
    while waiting:
        for node in model.dataflow.readers.get(waiting.pop(), ()):
            if node.op_type in ("STFT", "DFT"):
                return True
            if node.op_type == "Conv" and len(demands.weight_shape(model, node, 1) or ()) == 3:
                return True
            if node.op_type in _BEFORE_FEATURES:
                new = set(model.dataflow.outputs_of(node)) - visited
                visited |= new
                waiting += new
    return False
