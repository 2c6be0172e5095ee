"""Systems that a schema requires by name: of the database, a class or a field; the nearest wins.

What a field requires holds for its whole cache group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import chain, islice

from mediator.base.errors import Location
from mediator.base.offload import throttled
from mediator.placement.rank import ROOT, Refusal, refuse, title_of
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.tree import ClassSchema, Schema

__all__ = ["RequiredSystem", "RequiredSystems", "unknown_systems"]


@dataclass(frozen=True, slots=True)
class RequiredSystem:
    """A system, and the node of the schema that requires it."""

    system: str
    node: str

    @property
    def pointer(self) -> str:
        """The JSON pointer of the requirement in the schema."""
        class_name, _, field = self.node.partition(".")
        inner = "" if self.node == ROOT else f"/classes/{class_name}"
        return f"{inner}/fields/{field}/system" if field else f"{inner}/system"


@dataclass(frozen=True, slots=True)
class RequiredSystems:
    """The systems that are required of the nodes and cache groups of a schema.

    What stays on one system can have one requirement: `Unplaceable` is raised where there are two,
    with the locations of both.
    """

    schema: Schema

    def __iter__(self) -> Iterator[RequiredSystem]:
        """Yield all of them, outer nodes before inner ones."""
        yield from _named(ROOT, self.schema.system)
        for class_ in self.schema.classes.values():
            yield from _named(class_.name, class_.system)
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
        return next(_named(class_.name, class_.system), None) or self.of_database()

    def of_group(
        self, node: str, class_: ClassSchema, names: Iterable[str]
    ) -> RequiredSystem | None:
        """Return what is required of fields that are never split; `node` names their group."""
        return _agreed(node, self._of_fields(class_, names)) or self.of_class(class_)

    def _of_fields(self, class_: ClassSchema, names: Iterable[str]) -> Iterator[RequiredSystem]:
        for name in throttled(names):
            yield from _named(f"{class_.name}.{name}", class_.fields[name].system)


def unknown_systems(schema: Schema, systems: Iterable[str]) -> list[Location]:
    """Return where a schema requires systems that are not among these; at most `MAX_ERRORS`."""
    known = sorted(systems)

    @cache
    def mistake(name: str) -> str:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        return f"there is no system {name}; {hint}known: {', '.join(known) or 'none'}"

    missing = (each for each in RequiredSystems(schema) if each.system not in known)
    return [Location(each.pointer, mistake(each.system)) for each in islice(missing, MAX_ERRORS)]


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
            reason = f"is not {another.system}, which {title_of(another.node)} requires"
            reasons[one.system] = reason
            locations.append(Location(one.pointer, f"{one.system} {reason}"))
        refuse([Refusal(node, "one system for all of it", reasons, locations)])
    return first


def _named(node: str, system: str | None) -> Iterator[RequiredSystem]:
    if system is not None:
        yield RequiredSystem(system, node)
