"""The names in rules: events, their subjects, figures, functions and actions, with their types."""

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
"""A type below, a subject's name, or the name of an enumeration of constants."""

NUMBER: Final[Type] = "number"
TEXT: Final[Type] = "text"
CONDITION: Final[Type] = "condition"

Extent: TypeAlias = Literal["installation", "replica"]
"""Whether an event or action concerns shared state, or each replica separately."""


@dataclass(frozen=True, slots=True)
class EventType:
    """A kind of event.

    Attributes:
        attributes: Their types, by name.
        extent: Where it is noticed; None: wherever there is a rule on it.
    """

    attributes: Mapping[str, Type]
    extent: Extent | None


@dataclass(frozen=True, slots=True)
class Restricted:
    """A type of arguments whose constants are also checked.

    Attributes:
        base: The type of an argument.
        accepts: Whether a constant is allowed.
        expected: The expected value, as the subject of a sentence.
    """

    base: Type
    accepts: Callable[[Any], object]
    expected: str


@dataclass(frozen=True, slots=True)
class ActionType:
    """A kind of action.

    Attributes:
        parameters: The types of its arguments.
        extent: Where it acts.
        undone_by: The action that some rule must have if a rule has this one.
    """

    parameters: tuple[Type | Restricted, ...]
    extent: Extent
    undone_by: str | None = None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All names in rules.

    Attributes:
        events: The kinds of events, by name.
        subjects: The types of each subject's attributes.
        extents: The extents of subjects and figures that are known only to rules of that extent.
        constants: Constants, with their enumeration.
        figures: Functions without arguments, whose value is measured; with their description.
        existence: Functions of a predicate, with its subject: whether one meets it.
        selection: Functions of a predicate, with its subject: a random one that meets it.
        actions: The kinds of actions, by name.
        refused: Names of the language that are unsupported here, with the reason.
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
