"""Compiles kernels with numba, to machine code that runs without it.

A kernel becomes a function of words, which hold its arguments (`argument_types.Kind.put`), and a
number. It has numba's calling convention: places for a result and for an error come first, and it
returns a status. Nothing of numba's runtime is called, so arrays are those of `argument_types`.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import CellType, FunctionType, ModuleType
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from tracer.interpreter.kernels import argument_types
from tracer.interpreter.kernels.argument_types import (
    Array,
    Emitted,
    Helper,
    Kind,
    Number,
    OfCompiler,
    Signature,
    Tuple,
)

_INDEX = ir.IntType(64)
_types: Any = types
_WORDS: Any = _types.CPointer(types.int64)
_populate: Any = populate_array
_intrinsic: Callable[[Callable[..., Any]], Any] = intrinsic
_njit = partial(
    numba.njit, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False
)


def entry_code(function: Callable[..., Any], signature: Signature) -> tuple[str, bytes]:
    """Returns the name and the machine code of a function of these types, called by words."""
    run, given = _njit(_with_numba(function)), Tuple(signature.arguments)

    @_intrinsic
    def arguments(typingctx: Any, words: Any) -> Any:
        def code(context: Any, builder: Any, _: Any, values: Any) -> Any:
            return _Words(context, builder, values[0]).read(given)

        return _type(given)(words), code

    @_intrinsic
    def keep(typingctx: Any, words: Any, value: Any) -> Any:
        def code(context: Any, builder: Any, _: Any, values: Any) -> Any:
            _Words(context, builder, values[0]).write(signature.result, values[1])
            return context.get_dummy_value()

        return types.void(words, value), code

    def entry(words: Any, _: int) -> None:
        keep(words, run(*arguments(words)))

    return _machine_code(entry)


def task_code(function: Callable[..., Any]) -> tuple[str, bytes]:
    """Returns the name and the machine code of a function of words and a number."""
    return _machine_code(_with_numba(function))


@cache
def _load_arrays() -> None:
    """Loads numba's arrays without scipy, whose BLAS they ask for: no kernel calls it.

    It takes a quarter of a second. Code that calls it asks again.
    """
    linalg: Any = importlib.import_module("numba.np.linalg")
    asking, linalg.ensure_blas = linalg.ensure_blas, lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = asking


def _machine_code(function: Callable[..., Any]) -> tuple[str, bytes]:
    _load_arrays()
    made: Any = _njit(types.void(_WORDS, types.int64))(function)
    (compiled,) = made.overloads.values()
    module = compiled.library._final_module
    for each in module.functions:
        if each.is_declaration and each.name.startswith(("NRT_", "numba_", "Py")):
            raise NotImplementedError(
                f"{function.__qualname__} calls {each.name} of numba's runtime"
            )
    codegen: Any = cpu_target.target_context.codegen()
    return compiled.fndesc.llvm_func_name, codegen._tm.emit_object(module)


@cache
def _with_numba(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what numba knows in place of marks and types."""
    names = _names(function.__module__)
    cells = tuple(CellType(_resolve(cell.cell_contents)) for cell in function.__closure__ or ())
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


_NAMES: dict[str, dict[str, Any]] = {}


def _names(module: str) -> dict[str, Any]:
    """The global names of a module, with what numba knows in place of marks and types."""
    if module not in _NAMES:
        names = _NAMES[module] = dict(vars(importlib.import_module(module)))
        names |= {name: _resolve(value, module) for name, value in names.items()}
    return _NAMES[module]


def _resolve(value: Any, module: str = "") -> Any:
    match value:
        case Kind():
            return _type(value)
        case Helper():
            return _dispatcher(value)
        case Emitted():
            return _intrinsic(_with_numba(value.function))
        case OfCompiler():
            return globals()[value.name]
        case ModuleType() if value is argument_types:
            return types
        case FunctionType() if value.__module__ == module:
            return _with_numba(value)
    return value


def _type(kind: Kind) -> Any:
    match kind:
        case Number():
            return from_dtype(kind.dtype)
        case Array():
            return _types.Array(_type(kind.of), kind.rank, kind.order, readonly=kind.readonly)
        case Tuple():
            return (
                _types.Tuple([_type(each) for each in kind.members]) if kind.members else types.void
            )
    raise TypeError(f"numba has no {kind}")


@cache
def _dispatcher(helper: Helper) -> Any:
    """What numba compiles for the types of a helper, once a kernel calls it with one of them."""
    made: Any = _njit(**helper.options)(_with_numba(helper.function))
    signatures = [_type(each.result)(*map(_type, each.arguments)) for each in helper.signatures]
    template, converts = made.get_call_template, cpu_target.typing_context.can_convert

    def compiled_template(given: Sequence[Any], named: Any) -> Any:
        made.disable_compile(False)
        for signature in signatures:
            if all(converts(*pair) is not None for pair in zip(given, signature.args, strict=True)):
                made.compile(signature)
        made.disable_compile()
        return template(given, named)

    if signatures:
        made.get_call_template = compiled_template
    return made


def array_value(
    context: Any, builder: Any, kind: Any, start: Any, shape: list[Any], strides: Sequence[Any] = ()
) -> Any:
    """Writes code for an array that begins at an address or a pointer; contiguous by default."""
    array = context.make_array(kind)(context, builder)
    to = array.data.type
    is_address = isinstance(start.type, ir.IntType)
    data = builder.inttoptr(start, to) if is_address else builder.bitcast(start, to)
    size = _INDEX(kind.dtype.bitwidth // 8)
    if not strides:
        strides = [size]
        for extent in reversed(shape[1:]):
            strides = [builder.mul(strides[0], extent), *strides]
    _populate(array, data, shape, strides, size, None)
    return array._getvalue()


def external_function(context: Any, module: Any, name: str, *kinds: Any) -> Any:
    """Declares a function of C that takes these and returns a pointer, or nothing to be read."""
    pointer, *given = map(context.get_value_type, (types.voidptr, *kinds))
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(pointer, given), name)


class _Words:
    """Writes code that reads words, or writes them, one after the other."""

    def __init__(self, context: Any, builder: Any, words: Any) -> None:
        self._context, self._builder, self._words = context, builder, words
        self._count = 0

    def _place(self) -> Any:
        self._count += 1
        return self._builder.gep(self._words, [_INDEX(self._count - 1)])

    def read(self, kind: Kind) -> Any:
        """Reads a value."""
        context, b, wanted = self._context, self._builder, _type(kind)
        match kind:
            case Tuple():
                return context.make_tuple(b, wanted, [*map(self.read, kind.members)])
            case Array():
                return self._read_array(kind, wanted)
        word = b.load(self._place())
        if isinstance(wanted, types.Float):
            return context.cast(b, b.bitcast(word, ir.DoubleType()), types.float64, wanted)
        return context.cast(b, word, types.int64, wanted)

    def _read_array(self, kind: Array, numba_type: Any) -> Any:
        b = self._builder
        data = b.load(self._place())
        shape = [b.load(self._place()) for _ in range(kind.rank)]
        apart = [b.load(self._place()) for _ in range(kind.rank * (kind.order != "C"))]
        return array_value(self._context, b, numba_type, data, shape, apart)

    def write(self, kind: Kind, value: Any) -> None:
        """Writes a value."""
        if isinstance(kind, Tuple):
            for n, member in enumerate(kind.members):
                self.write(member, self._builder.extract_value(value, n))
            return
        context, b, given = self._context, self._builder, _type(kind)
        if isinstance(given, types.Float):
            word = b.bitcast(context.cast(b, value, given, types.float64), _INDEX)
        else:
            word = context.cast(b, value, given, types.int64)
        b.store(word, self._place())
