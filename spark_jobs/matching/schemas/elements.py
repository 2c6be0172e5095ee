"""What is matched: fields of classes, columns of tables, properties of JSON schemas."""

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
        path: Names that lead to it, from the root; a column has its name alone.
        type: The JSON type of its values; empty if it is not known.
        profile: Of its values; None: there are none to look at.
    """

    path: tuple[str, ...]
    type: str = ""
    profile: ColumnProfile | None = None

    @property
    def name(self) -> str:
        return self.path[-1]

    @cached_property
    def identifier(self) -> str:
        """One text, however many candidates it is in."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pair that may correspond.

    Attributes:
        bits: Of evidence for the relation; 0 is as probable as not.
        evidence: In sentences without an end, the weightiest first.
    """

    left: str
    right: str
    bits: float
    relation: Relation
    evidence: tuple[str, ...]
