"""The messages of pprof's `proto/profile.proto`, described here so that no compiler is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

_PACKAGE = "perftools.profiles"

_MESSAGES: dict[str, tuple[str, ...]] = {
    "ValueType": ("int64 type 1", "int64 unit 2"),
    "Label": ("int64 key 1", "int64 str 2", "int64 num 3", "int64 num_unit 4"),
    "Sample": ("uint64* location_id 1", "int64* value 2", "Label* label 3"),
    "Mapping": (
        "uint64 id 1", "uint64 memory_start 2", "uint64 memory_limit 3", "uint64 file_offset 4",
        "int64 filename 5", "int64 build_id 6", "bool has_functions 7", "bool has_filenames 8",
        "bool has_line_numbers 9", "bool has_inline_frames 10",
    ),
    "Line": ("uint64 function_id 1", "int64 line 2", "int64 column 3"),
    "Location": (
        "uint64 id 1", "uint64 mapping_id 2", "uint64 address 3", "Line* line 4",
        "bool is_folded 5",
    ),
    "Function": (
        "uint64 id 1", "int64 name 2", "int64 system_name 3", "int64 filename 4",
        "int64 start_line 5",
    ),
    "Profile": (
        "ValueType* sample_type 1", "Sample* sample 2", "Mapping* mapping 3",
        "Location* location 4", "Function* function 5", "string* string_table 6",
        "int64 drop_frames 7",
        "int64 keep_frames 8", "int64 time_nanos 9", "int64 duration_nanos 10",
        "ValueType period_type 11", "int64 period 12", "int64* comment 13",
        "int64 default_sample_type 14", "int64 doc_url 15",
    ),
}  # fmt: skip
"""The fields of each message: type, `*` if repeated, name, number."""


@cache
def profile_class() -> Any:
    """Returns the class of the message `Profile`, as protobuf makes it from the description."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="profile.proto", package=_PACKAGE, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            kind, field_name, number = field.split()
            scalar, repeated = kind.removesuffix("*"), kind.endswith("*")
            described = message.field.add(name=field_name, number=int(number))
            described.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if scalar in _MESSAGES:
                described.type, described.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{scalar}"
            else:
                described.type = getattr(kinds, f"TYPE_{scalar.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))
