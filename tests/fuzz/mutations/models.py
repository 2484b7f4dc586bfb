"""Mutations of a model: of its protobuf, of its bytes, or of both."""

from __future__ import annotations

from random import Random

import onnx

from tests.fuzz.mutations import declared, octets, structure
from tests.fuzz.mutations.graph_parts import NothingToMutateError

MUTATIONS = (*declared.MUTATIONS, *structure.MUTATIONS)
BYTES_ALONE, BYTES_TOO = 0.07, 0.1
"""Shares of the mutations that are of bytes: most of those end in the parser."""


def mutated(random: Random, content: bytes, other: bytes) -> tuple[bytes, str]:
    """Returns the model after some mutations, and their names. `other` is another model."""
    share = random.random()
    if share < BYTES_ALONE:
        return octets.mutated(random, content, other)
    try:
        model, donor = onnx.ModelProto.FromString(content), onnx.ModelProto.FromString(other)
    except Exception:  # protobuf's DecodeError: a seed that is no model
        return octets.mutated(random, content, other)
    names = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        mutation = random.choice(MUTATIONS)
        try:
            mutation(random, model, donor)
        except (NothingToMutateError, UnicodeDecodeError):  # or a mutation before made a name bytes
            continue
        names.append(mutation.__name__)
    if "name" not in names and random.random() < 0.3:  # so that more mutants pass the checks
        structure.forget_shapes(random, model, donor)
    changed = model.SerializeToString()
    if share < BYTES_TOO:
        changed, name = octets.mutated(random, changed, other)
        names.append(name)
    return changed, "+".join(names)
