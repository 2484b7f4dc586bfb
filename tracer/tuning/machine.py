"""What the changes depend on besides the model: the processor, and what is installed."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import onnxruntime as ort

from tracer import host
from tracer.records import environment
from tracer.support import processors


@dataclass(frozen=True, slots=True)
class Machine:
    """The processor of this machine, and the providers of the installed onnxruntime.

    `cores` are the physical ones that this process may use, which onnxruntime's default is a thread
    for each of; `cpus` are the logical ones. `flags` are instruction sets.
    """

    cpu: str
    architecture: str
    cores: int
    cpus: int
    flags: frozenset[str]
    providers: tuple[str, ...]
    onnxruntime: str

    @classmethod
    def this(cls) -> Machine:
        """Returns the machine that this runs on."""
        return cls(
            cpu=environment.cpu_model(),
            architecture=platform.machine(),
            cores=host.cores(),
            cpus=processors.available(),
            flags=frozenset(environment.cpu_flags()),
            providers=tuple(ort.get_available_providers()),
            onnxruntime=ort.__version__,
        )

    @property
    def multiplies_bytes(self) -> bool:
        """Whether it has instructions that add products of bytes in 32 bits, exactly."""
        return processors.adds_bytes_exactly(self.flags)

    @property
    def saturates(self) -> bool:
        """Whether unsigned by signed bytes are added in pairs of 16 bits, which saturate."""
        return processors.saturates(self.flags)
