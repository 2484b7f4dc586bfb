"""Classes of protobuf messages from tables, so that no compiler and no generated file is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Messages = Mapping[str, Sequence[str]]
"""The fields of each message: type, `*` if repeated, name, number, as in `int64* value 2`."""


def message_classes(package: str, messages: Messages) -> dict[str, Any]:
    """Returns the class of each message, as protobuf makes it from the table."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields:
            kind, field_name, number = field.split()
            scalar, repeated = kind.removesuffix("*"), kind.endswith("*")
            described = message.field.add(name=field_name, number=int(number))
            described.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if scalar in messages:
                described.type, described.type_name = kinds.TYPE_MESSAGE, f".{package}.{scalar}"
            else:
                described.type = getattr(kinds, f"TYPE_{scalar.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(each) for name, each in found.items()}
