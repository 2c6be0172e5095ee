"""What rules may name: events, their subjects, figures, functions and actions, with their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

__all__ = [
    "CONDITION",
    "NUMBER",
    "TEXT",
    "ActionType",
    "EventType",
    "Extent",
    "Restricted",
    "Type",
    "Vocabulary",
]

Type: TypeAlias = str
"""One of those below, a subject's name, or the name of an enumeration of constants."""

NUMBER: Final[Type] = "number"
TEXT: Final[Type] = "text"
CONDITION: Final[Type] = "condition"

Extent: TypeAlias = Literal["installation", "replica"]
"""Whether something concerns what all replicas share, or each replica by itself."""


@dataclass(frozen=True, slots=True)
class EventType:
    """A kind of event.

    Attributes:
        attributes: Their types, by name.
        extent: Who notices it; None: whoever has a rule on it.
    """

    attributes: Mapping[str, Type]
    extent: Extent | None


@dataclass(frozen=True, slots=True)
class Restricted:
    """A type of arguments of which a constant is checked as well.

    Attributes:
        base: What an argument must be.
        accepts: Whether it may be this.
        expected: What is expected, as the subject of a sentence.
    """

    base: Type
    accepts: Callable[[Any], object]
    expected: str


@dataclass(frozen=True, slots=True)
class ActionType:
    """A kind of action.

    Attributes:
        parameters: The types of its arguments.
        extent: On what it acts.
        undone_by: The action that some rule must have wherever a rule has this one.
    """

    parameters: tuple[Type | Restricted, ...]
    extent: Extent
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All that there is to name.

    Attributes:
        events: By name.
        subjects: The types of each subject's attributes.
        extents: Of subjects and figures that are known only where rules act on that.
        constants: Constants, with the enumeration that each belongs to.
        figures: Functions without arguments, whose value is measured; with what they say.
        existence: Functions of a predicate, by the subject that it is about: is there one?
        selection: Functions of a predicate, by its subject: one of them, at random.
        actions: By name.
        refused: Names of the language that mean nothing here, with the reason.
    """

    events: Mapping[str, EventType]
    subjects: Mapping[str, Mapping[str, Type]]
    constants: Mapping[str, Type]
    figures: Mapping[str, str]
    existence: Mapping[str, str]
    selection: Mapping[str, str]
    actions: Mapping[str, ActionType]
    refused: Mapping[str, str] = field(default_factory=dict)
    extents: Mapping[str, Extent] = field(default_factory=dict)

    @property
    def functions(self) -> list[str]:
        return [*self.figures, *self.existence, *self.selection]
