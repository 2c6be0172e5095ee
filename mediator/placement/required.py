"""Systems that are required by name: of the database, a class or a field; the nearest wins.

What a field requires holds for its whole cache group. Overrides come before what the schema says.
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
    """A system, and the node of the schema that requires it, or that it is overridden for."""

    system: str
    node: str
    override: Override | None = None

    def __str__(self) -> str:
        """Say who requires it."""
        node = title_of(self.node)
        if self.override is None:
            return f"{node} requires the system {self.system}"
        end = self.override.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
        return f"{node} is overridden to {self.system} until {end} ({self.override.reason})"

    @property
    def pointer(self) -> str:
        """The JSON pointer of the requirement in the schema, where an override is not."""
        if self.override is not None:
            return "override"
        class_name, _, name = self.node.partition(".")
        inner = "" if self.node == ROOT else f"/classes/{class_name}"
        return f"{inner}/fields/{name}/system" if name else f"{inner}/system"


@dataclass(frozen=True, slots=True)
class RequiredSystems:
    """The systems that are required of the nodes and cache groups of a schema.

    What stays on one system can have one requirement: `Unplaceable` is raised where there are two,
    with the locations of both.
    """

    schema: Schema
    overrides: Overrides = field(default_factory=dict)

    def __iter__(self) -> Iterator[RequiredSystem]:
        """Yield all of them, outer nodes before inner ones."""
        yield from _named(ROOT, self.schema.system)
        for class_ in self.schema.classes.values():
            yield from self._of_node(class_.name, class_.system)
            yield from self._of_fields(class_, class_.fields)

    def of_everything(self) -> RequiredSystem | None:
        """Return what is required of a database that stays on one system."""
        return _agreed(ROOT, self)

    def of_database(self) -> RequiredSystem | None:
        return next(_named(ROOT, self.schema.system), None)

    def of_whole(self, class_: ClassSchema) -> RequiredSystem | None:
        """Return what is required of a class that stays on one system."""
        above = self.of_class(class_)
        inner = self._of_fields(class_, class_.fields)
        return _agreed(class_.name, chain([above] if above else (), inner))

    def of_class(self, class_: ClassSchema) -> RequiredSystem | None:
        """Return what is required of the fields of a class that require nothing themselves."""
        return next(self._of_node(class_.name, class_.system), None) or self.of_database()

    def of_group(
        self, node: str, class_: ClassSchema, names: Iterable[str]
    ) -> RequiredSystem | None:
        """Return what is required of fields that are never split; `node` names their group."""
        found = list(self._of_fields(class_, names))
        overridden = [each for each in found if each.override]
        return _agreed(node, overridden or found) or self.of_class(class_)

    def _of_fields(self, class_: ClassSchema, names: Iterable[str]) -> Iterator[RequiredSystem]:
        """Yield what fields require themselves; of a class that is overridden, overrides only."""
        is_overridden = class_.name in self.overrides
        for name in throttled(names):
            system = None if is_overridden else class_.fields[name].system
            yield from self._of_node(f"{class_.name}.{name}", system)

    def _of_node(self, node: str, system: str | None) -> Iterator[RequiredSystem]:
        override = self.overrides.get(node)
        if override is None:
            yield from _named(node, system)
        else:
            yield RequiredSystem(override.system, node, override)


def unknown_systems(schema: Schema, systems: Iterable[str]) -> list[Location]:
    """Return where a schema requires systems that are not among these; at most `MAX_ERRORS`."""
    known = tuple(sorted(systems))
    missing = (each for each in RequiredSystems(schema) if each.system not in known)
    return [
        Location(each.pointer, unknown_system(each.system, known))
        for each in islice(missing, MAX_ERRORS)
    ]


def unknown_system(name: str, known: Sequence[str]) -> str:
    """Say that there is no such system, and which ones there are."""
    meant = did_you_mean(name, known)
    return f"there is no system {name}; known: {', '.join(known) or 'none'}{meant}"


def _agreed(node: str, required: Iterable[RequiredSystem]) -> RequiredSystem | None:
    """Return the first requirement, if no other one contradicts it."""
    found = list(required)
    if not found:
        return None
    first = found[0]
    other = next((each for each in found if each.system != first.system), None)
    if other:
        reasons, locations = {}, []
        for one, another in ((first, other), (other, first)):
            reason = f"is ruled out, as {another}"
            reasons[one.system] = reason
            locations.append(Location(one.pointer, f"{one.system} {reason}"))
        refuse([Refusal(node, "one system for all of it", reasons, locations)])
    return first


def _named(node: str, system: str | None) -> Iterator[RequiredSystem]:
    if system is not None:
        yield RequiredSystem(system, node)
