"""What is known of a sum after it was revealed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tracer.records.result import Result


@dataclass(frozen=True, slots=True, repr=False)
class Revealed(Result):
    """How a function of two vectors of `terms` numbers adds their products.

    `rule` says it in words; it is None if it is not known, and `reason` says what speaks against
    the rule that came closest. `spec` is the accumulator as `--accumulator` takes it, None for
    rules that no accumulator has. `facts` has the parts of the rule by name. `probes` are the calls
    with one pair of vectors; `vectors` are the random pairs among them that verified the rule.
    """

    view: ClassVar[str] = "tracer.analyzers.views.revealed"

    function: str
    terms: int
    operands: str
    rule: str | None
    spec: str | None
    reason: str
    probes: int
    vectors: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    tree: str = ""

    @property
    def is_known(self) -> bool:
        """Whether a rule was found and verified."""
        return self.rule is not None

    def headline(self) -> str:
        """The function and its rule."""
        return f"{self.function}, {self.terms} terms: {self.spec or self.rule or 'not known'}"
