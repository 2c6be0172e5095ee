"""The plan of a schema change: the state before it, and its effects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mediator.base.offload import throttled
from mediator.catalogue.schema_revisions import SchemaHistory
from mediator.catalogue.stored_databases import StoredDatabase, new_id
from mediator.control.effects import without
from mediator.control.layout import (
    UniqueBuild,
    builds_of,
    fragments_of,
    layout_of,
    view_system_of,
)
from mediator.control.overrides import documents
from mediator.control.port import ChangeOptions
from mediator.placement.decide import Decision, view_system
from mediator.routing.model import DatabaseRoute
from mediator.schema.copies import FieldCopy
from mediator.schema.foreign_keys import added_foreign_keys
from mediator.schema.overrides import Overrides
from mediator.schema.render import schema_document
from mediator.schema.tightening import (
    Constraints,
    TightenedConstraint,
    backfillable_constraints,
    tightened_constraints,
    unique_constraints,
)
from mediator.schema.tree import Mode, Schema

__all__ = ["Before", "SchemaPlan", "stored_form"]

_DROPPED: Final = "dropped"


@dataclass(frozen=True, slots=True)
class Before:
    """The state before a change.

    Attributes:
        stored: The database, if there is one.
        renamed: The same, its fields under their new names.
        route: The routes of `renamed`.
        holding: The classes that hold objects, which the change keeps.
        history: The former history of a database that is created from a backup.
    """

    stored: StoredDatabase | None
    renamed: StoredDatabase | None
    route: DatabaseRoute | None
    holding: frozenset[str] = frozenset()
    history: SchemaHistory | None = None


def stored_form(
    schema: Schema,
    decision: Decision,
    before: Before,
    overrides: Overrides,
    now: float,
    unfit: Collection[str] = (),
) -> StoredDatabase:
    """Return a schema and its placements as the catalogue stores them.

    `unfit` systems take no copies. New classes are created `now` (seconds since 1970).
    """
    stored = before.stored
    document = schema_document(schema)
    versions = {c: _class_version(c, document, stored) for c in schema.classes}
    has_view = schema.mode is Mode.MICROBATCHED
    present = view_system_of(stored)
    view = view_system(schema, decision, present, unfit) if has_view else None
    former_layout = before.renamed.layout if before.renamed else {}
    layout = {}
    if schema.mode is not Mode.ADVISORY:
        retyped = _retyped_fields(before.renamed.document if before.renamed else {}, document)
        layout = layout_of(decision, versions, view, former_layout, now, before.holding, retyped)
    version = stored.version + 1 if stored else 1
    id_ = stored.id if stored else new_id(schema.database)
    new = StoredDatabase(
        schema.database, id_, version, document, layout, overrides=documents(overrides)
    )
    history = before.history
    if history is None:
        return new
    return replace(new, version=history.version, retired_before=history.retired_before)


def _retyped_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the fields whose type changes, by class."""
    former = before.get("classes", {})
    return {
        name: {
            field
            for field, new in throttled(class_["fields"].items())
            if (old := former[name]["fields"].get(field)) is not None
            and (old["type"], old.get("items")) != (new["type"], new.get("items"))
        }
        for name, class_ in after["classes"].items()
        if name in former
    }


def _class_version(class_name: str, document: dict[str, Any], stored: StoredDatabase | None) -> int:
    """Return the version of a class, raised if its own schema changes: ETags contain it."""
    if stored is None or class_name not in stored.layout:
        return 1
    before: int = stored.layout[class_name]["version"]
    is_unchanged = stored.document["classes"].get(class_name) == document["classes"][class_name]
    return before if is_unchanged else before + 1


def _reuses_names(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a class gives a name to another field than before, by its layouts."""
    fields = (name for placed in after["groups"].values() for name in placed["fields"])
    renamed_since = after["names"].items() - before["names"].items()
    return bool(renamed_since) or not {*before["freed"]}.isdisjoint(fields)


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """The effects of a change.

    Attributes:
        moves: Data it would move between systems, which forbids it.
        epoch: The epoch of the routing model under which it was planned.
        moved: The copies whose sources it drops.
    """

    schema: Schema
    before: Before
    new: StoredDatabase
    route: DatabaseRoute
    options: ChangeOptions
    decision: Decision
    moves: Sequence[dict[str, Any]]
    epoch: int
    moved: Sequence[FieldCopy] = ()

    @property
    def stored(self) -> StoredDatabase | None:
        return self.before.stored

    @property
    def present(self) -> DatabaseRoute | None:
        return self.before.route

    @property
    def holding(self) -> frozenset[str]:
        return self.before.holding

    @property
    def builds(self) -> dict[str, UniqueBuild]:
        """The unique constraints that are being built, by class."""
        return builds_of(self.before.renamed) if self.before.renamed else {}

    @property
    def added_unique(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """The unique constraints that are added over objects, including those being built.

        A new field has no values.
        """
        added, builds = {}, self.builds
        for name in sorted(self.holding & self.schema.classes.keys()):
            assert self.present is not None
            before, build = self.present.schema.classes[name], builds.get(name)
            former_constraints = {*before.unique_constraints} - {*(build.unique if build else ())}
            added[name] = tuple(
                names
                for names in self.schema.classes[name].unique_constraints
                if names not in former_constraints and before.fields.keys() >= set(names)
            )
        return {name: unique for name, unique in added.items() if unique}

    @property
    def dropped_classes(self) -> frozenset[str]:
        return frozenset(node for node in self.options.drop if "." not in node)

    @property
    def dropped_fields(self) -> Constraints:
        """The dropped fields, each as a constraint that every value breaks."""
        nodes = [tuple(node.split(".")) for node in sorted(self.options.drop) if "." in node]
        return {
            (class_name, name, _DROPPED): TightenedConstraint(
                class_name, name, _DROPPED, lambda _: False
            )
            for class_name, name in nodes
            if class_name in self.holding
        }

    @property
    def leaving_classes(self) -> frozenset[str]:
        """The classes with objects that leave a system, whose fields there are dropped."""
        removed = without(fragments_of(self.present), fragments_of(self.route))
        return self.holding & {fragment.class_name for fragment in removed}

    @property
    def moved_classes(self) -> set[str]:
        """The classes of moved values, and those of their new fields."""
        return {name for copy in self.moved for name in (copy.class_name, copy.source_class)}

    @property
    def reuses_names(self) -> bool:
        """Whether a replica that is behind may take a name for another field."""
        former = self.before.renamed.layout if self.before.renamed else {}
        return bool(self.options.rename or self.dropped_fields) or any(
            _reuses_names(former[name], layout)
            for name, layout in self.new.layout.items()
            if name in former
        )

    def constraints(self, options: ChangeOptions) -> tuple[Constraints, Constraints]:
        """Return the constraints to check for existing objects, and those to fill by defaults."""
        filled = backfillable_constraints(self.schema, self.holding) if options.backfill else {}
        if options.unchecked or self.present is None:
            return {}, filled
        tighter = dict(tightened_constraints(self.present.schema, self.schema, self.holding))
        for name, added in self.added_unique.items():
            tighter |= unique_constraints(self.schema.classes[name], added)
        unfilled = {
            key: constraint for key, constraint in sorted(tighter.items()) if key not in filled
        }
        return unfilled, filled

    @property
    def newly_connected(self) -> set[str]:
        """The existing classes that foreign keys connect from this change on."""
        if self.present is None:
            return set()
        added = added_foreign_keys(self.present.schema, self.schema)
        class_names = {name for key in added for name in (key.class_name, key.to)}
        return class_names & self.present.classes.keys()

    @property
    def newly_unique(self) -> set[str]:
        """The classes with objects that get a unique constraint with a new field.

        Nothing has to be built, as no object has a value of it.
        """
        if self.present is None:
            return set()
        before, after = self.present.schema.classes, self.schema.classes
        return {
            name
            for name in self.holding & after.keys()
            if any(
                set(names) - before[name].fields.keys() for names in after[name].unique_constraints
            )
        }

    @property
    def former_names(self) -> dict[str, dict[str, str]]:
        """The present names of renamed fields, by class and new name."""
        renames = self.options.rename.items()
        return {name: {new: old for old, new in names.items()} for name, names in renames}

    @property
    def owned_classes(self) -> set[str]:
        """The classes whose objects have owners, before the change or after it."""
        schemas = [self.schema, *([self.present.schema] if self.present else [])]
        return {name for s in schemas for name, c in s.classes.items() if c.owner_field}
