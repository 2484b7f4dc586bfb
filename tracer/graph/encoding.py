"""Writes protobufs as bytes; what protobuf cannot write is one clear error."""

from google.protobuf.message import EncodeError, Message

from tracer.errors import LimitError


def encoded(proto: Message, name: str, *, sorted_maps: bool = False) -> bytes:
    """Returns `proto` as bytes; `name` is that of its model, for the error.

    `sorted_maps` makes the bytes of equal protobufs equal.

    Raises LimitError beyond 2 GiB, and where the memory does not suffice: protobuf does not tell
    which.
    """
    try:
        return proto.SerializeToString(deterministic=sorted_maps)
    except (EncodeError, MemoryError) as error:
        raise LimitError(
            f"{name}: the model is larger than a protobuf can be, 2 GiB, or than the memory left",
            "Store its weights as external data, or raise --max-memory.",
        ) from error
