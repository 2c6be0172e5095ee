"""The matched elements: fields of classes, columns of tables, properties of JSON schemas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from spark_jobs.matching.schemas.profiles import ColumnProfile
from spark_jobs.matching.schemas.relations import Relation

__all__ = ["Candidate", "Element"]


@dataclass(frozen=True)
class Element:
    """One field of a schema.

    Attributes:
        path: The names from the root to it; for a column only its name.
        type: The JSON type of its values; empty if unknown.
        profile: The profile of its values; None: no values are available.
    """

    path: tuple[str, ...]
    type: str = ""
    profile: ColumnProfile | None = None

    @property
    def name(self) -> str:
        return self.path[-1]

    @cached_property
    def identifier(self) -> str:
        """The path as text, cached because many candidates share it."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair that may correspond.

    Attributes:
        bits: The evidence for the relation; 0 means equal odds.
        evidence: Reasons, as sentences without a full stop, the strongest first.
    """

    left: str
    right: str
    bits: float
    relation: Relation
    evidence: tuple[str, ...]
