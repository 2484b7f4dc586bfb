"""Extends griffe, which reads sources for docs/python.md, by what callers of tracer see.

A function of a record, as `profile(call: ProfileArguments)`, is called with the fields of the
record, and their helps are its arguments' documentation.
"""

import importlib
import inspect
from dataclasses import fields
from typing import Any

import griffe

import tracer


class RecordArguments(griffe.Extension):
    """Gives functions of `tracer` the signature and arguments that they have when they run."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replaces the parameters of a public function of records."""
        if func.name not in tracer.__all__ or not func.module.path.startswith("tracer.api"):
            return
        function = getattr(tracer, func.name)
        if hasattr(function, "__signature__"):
            parameters = inspect.signature(function).parameters.values()
            func.parameters = griffe.Parameters(*map(_parameter, parameters))
            func.docstring = griffe.Docstring(_documentation(function), parent=func)


def _documentation(function: Any) -> str:
    """The docstring in the source, and the helps of the fields of its record."""
    (record,) = inspect.get_annotations(function.__wrapped__, eval_str=False).keys() - {"return"}
    name = function.__wrapped__.__annotations__[record]
    options = fields(vars(importlib.import_module(function.__module__))[name])
    helps = [f"    {each.name}: {each.metadata['help']}" for each in options
             if "help" in each.metadata]  # fmt: skip
    return "\n".join([inspect.cleandoc(function.__wrapped__.__doc__), "", "Args:", *helps])


def _parameter(parameter: inspect.Parameter) -> griffe.Parameter:
    default = None if parameter.default is parameter.empty else repr(parameter.default)
    annotation = None if parameter.annotation is parameter.empty else str(parameter.annotation)
    kind = griffe.ParameterKind[parameter.kind.name.lower()]
    return griffe.Parameter(parameter.name, annotation=annotation, kind=kind, default=default)
