"""Systems that a database, a class or a field requires by name; the innermost wins.

A field's requirement applies to its whole cache group. Overrides take precedence over the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import chain, islice

from mediator.base.errors import Location
from mediator.base.offload import throttled
from mediator.base.suggestions import did_you_mean
from mediator.placement.rank import ROOT, Refusal, refuse, title_of
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.overrides import Override, Overrides
from mediator.schema.tree import ClassSchema, Schema

__all__ = ["RequiredSystem", "RequiredSystems", "unknown_system", "unknown_systems"]


@dataclass(frozen=True, slots=True)
class RequiredSystem:
    """A system, and the node of the schema that requires it or is overridden to it."""

    system: str
    node: str
    override: Override | None = None

    def __str__(self) -> str:
        """Describe who requires it."""
        node = title_of(self.node)
        if self.override is None:
            return f"{node} requires the system {self.system}"
        end = self.override.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
        return f"{node} is overridden to {self.system} until {end} ({self.override.reason})"

    @property
    def pointer(self) -> str:
        """The JSON pointer of the requirement in the schema, or `override`."""
        if self.override is not None:
            return "override"
        class_name, _, name = self.node.partition(".")
        inner = "" if self.node == ROOT else f"/classes/{class_name}"
        return f"{inner}/fields/{name}/system" if name else f"{inner}/system"


@dataclass(frozen=True, slots=True)
class RequiredSystems:
    """The systems required by the nodes and cache groups of a schema.

    Data that stays on one system can have only one requirement: two that differ raise
    `Unplaceable`, with the locations of both.
    """

    schema: Schema
    overrides: Overrides = field(default_factory=dict)

    def __iter__(self) -> Iterator[RequiredSystem]:
        """Yield all requirements, outer nodes before inner ones."""
        yield from _requirement(ROOT, self.schema.system)
        for class_ in self.schema.classes.values():
            yield from self._of_node(class_.name, class_.system)
            yield from self._of_fields(class_, class_.fields)

    def of_everything(self) -> RequiredSystem | None:
        """Return the requirement of a database that stays on one system."""
        return _agreed(ROOT, self)

    def of_database(self) -> RequiredSystem | None:
        return next(_requirement(ROOT, self.schema.system), None)

    def of_whole(self, class_: ClassSchema) -> RequiredSystem | None:
        """Return the requirement of a class that stays on one system."""
        outer = self.of_class(class_)
        inner = self._of_fields(class_, class_.fields)
        return _agreed(class_.name, chain([outer] if outer else (), inner))

    def of_class(self, class_: ClassSchema) -> RequiredSystem | None:
        """Return the requirement of a class's fields that have no requirement."""
        return next(self._of_node(class_.name, class_.system), None) or self.of_database()

    def of_group(
        self, node: str, class_: ClassSchema, names: Iterable[str]
    ) -> RequiredSystem | None:
        """Return the requirement of fields that are never split; `node` names their group."""
        requirements = list(self._of_fields(class_, names))
        overridden = [required for required in requirements if required.override]
        return _agreed(node, overridden or requirements) or self.of_class(class_)

    def _of_fields(self, class_: ClassSchema, names: Iterable[str]) -> Iterator[RequiredSystem]:
        """Yield the requirements of fields; of an overridden class, only overrides."""
        is_overridden = class_.name in self.overrides
        for name in throttled(names):
            system = None if is_overridden else class_.fields[name].system
            yield from self._of_node(f"{class_.name}.{name}", system)

    def _of_node(self, node: str, system: str | None) -> Iterator[RequiredSystem]:
        override = self.overrides.get(node)
        if override is None:
            yield from _requirement(node, system)
        else:
            yield RequiredSystem(override.system, node, override)


def unknown_systems(schema: Schema, systems: Iterable[str]) -> list[Location]:
    """Return the locations of required systems that are not in `systems`; at most `MAX_ERRORS`."""
    names = tuple(sorted(systems))
    missing = (required for required in RequiredSystems(schema) if required.system not in names)
    return [
        Location(required.pointer, unknown_system(required.system, names))
        for required in islice(missing, MAX_ERRORS)
    ]


def unknown_system(name: str, names: Sequence[str]) -> str:
    """Format the error that a system does not exist, with those that do."""
    hint = did_you_mean(name, names)
    return f"there is no system {name}; known: {', '.join(names) or 'none'}{hint}"


def _agreed(node: str, required: Iterable[RequiredSystem]) -> RequiredSystem | None:
    """Return the first requirement, unless another one contradicts it."""
    requirements = list(required)
    if not requirements:
        return None
    first = requirements[0]
    other = next((item for item in requirements if item.system != first.system), None)
    if other:
        reasons, locations = {}, []
        for one, contradiction in ((first, other), (other, first)):
            reason = f"is ruled out, as {contradiction}"
            reasons[one.system] = reason
            locations.append(Location(one.pointer, f"{one.system} {reason}"))
        refuse([Refusal(node, "one system for all of it", reasons, locations)])
    return first


def _requirement(node: str, system: str | None) -> Iterator[RequiredSystem]:
    if system is not None:
        yield RequiredSystem(system, node)
