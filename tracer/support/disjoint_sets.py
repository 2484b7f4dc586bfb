"""Disjoint sets of things that are joined one pair after the other."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Sets without a common element; an element that was not added yet is a set of its own."""

    def __init__(self) -> None:
        self._above: dict[T, T] = {}

    def add(self, element: T) -> None:
        """Adds an element."""
        self._above.setdefault(element, element)

    def join(self, one: T, other: T) -> None:
        """Makes one set of the sets of two elements."""
        self._above[self.top(one)] = self.top(other)

    def top(self, element: T) -> T:
        """Returns the element that stands for a set, until that is joined with another."""
        self.add(element)
        while self._above[element] != element:
            self._above[element] = self._above[self._above[element]]
            element = self._above[element]
        return element

    def all(self) -> list[list[T]]:
        """Returns the sets in the order of their first elements, elements as they were added."""
        sets: dict[T, list[T]] = {}
        for element in self._above:
            sets.setdefault(self.top(element), []).append(element)
        return list(sets.values())
