"""Schema changes: the plan of one, its effects on data that is there, and on the view."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mediator.base.errors import (
    Conflict,
    DataWouldMove,
    Invalid,
    Location,
    SchemaInvalid,
    Unplaceable,
)
from mediator.base.offload import throttled
from mediator.base.suggestions import did_you_mean
from mediator.catalogue.stored_databases import StoredDatabase, new_id
from mediator.control.layout import (
    UniqueBuild,
    builds_of,
    fragments_of,
    layout_of,
    location_of,
    same_place,
    view_system_of,
)
from mediator.control.overrides import documents
from mediator.control.port import ChangeOptions
from mediator.materialisation.service import ViewService
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide, pins_of, view_system
from mediator.routing.model import DatabaseRoute
from mediator.schema.copies import FieldCopy
from mediator.schema.foreign_keys import added_foreign_keys
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.overrides import Overrides
from mediator.schema.render import schema_document
from mediator.schema.tightening import (
    Constraints,
    TightenedConstraint,
    backfillable,
    tightened,
    unique_constraints,
)
from mediator.schema.tree import ClassSchema, Field, Mode, Schema
from mediator.stores.port import Fragment, Mirror
from mediator.stores.systems import Systems

__all__ = [
    "Before",
    "SchemaPlan",
    "check_dropped",
    "check_indexes",
    "check_unique",
    "check_view",
    "decide_change",
    "left_behind",
    "notes_on_view",
    "replaced",
    "stored_form",
    "without",
    "without_copies",
    "would_move",
]

_DROPPED: Final = "dropped"


@dataclass(frozen=True, slots=True)
class Before:
    """What there is before a change.

    Attributes:
        stored: The database, if there is one.
        renamed: The same, its fields under their new names.
        route: The routes of `renamed`.
        holding: The classes that hold objects, which the change keeps.
    """

    stored: StoredDatabase | None
    renamed: StoredDatabase | None
    route: DatabaseRoute | None
    holding: frozenset[str] = frozenset()


def stored_form(
    schema: Schema,
    decision: Decision,
    before: Before,
    overrides: Overrides,
    unfit: Collection[str] = (),
) -> StoredDatabase:
    """Return a schema and its placements as the catalogue keeps them.

    Systems that are `unfit` take no copies.
    """
    stored = before.stored
    document = schema_document(schema)
    versions = {c: _class_version(c, document, stored) for c in schema.classes}
    mirrored = schema.mode is Mode.MICROBATCHED
    present = view_system_of(stored)
    view = view_system(schema, decision, present, unfit) if mirrored else None
    kept = before.renamed.layout if before.renamed else {}
    layout = {}
    if schema.mode is not Mode.ADVISORY:
        retyped = _retyped(before.renamed.document if before.renamed else {}, document)
        layout = layout_of(decision, versions, view, kept, before.holding, retyped)
    version = stored.version + 1 if stored else 1
    id_ = stored.id if stored else new_id(schema.database)
    return StoredDatabase(
        schema.database, id_, version, document, layout, overrides=documents(overrides)
    )


def _retyped(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return by class the fields that have another type than before."""
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
    """Raise the version of a class if its own schema changes: ETags contain it."""
    if stored is None or class_name not in stored.layout:
        return 1
    before: int = stored.layout[class_name]["version"]
    same = stored.document["classes"].get(class_name) == document["classes"][class_name]
    return before if same else before + 1


def would_move(moves: Sequence[dict[str, Any]]) -> DataWouldMove:
    nodes = ", ".join(move["node"] for move in moves)
    return DataWouldMove(
        f"The change would move or reinterpret data that is there: {nodes}.",
        extra={"plan": list(moves)},
    )


def _drifted(
    present: DatabaseRoute, candidates: Sequence[Candidate], holding: set[str], overrides: Overrides
) -> set[tuple[str, str, bool]]:
    """Return the moves that are due without a change: scores, overrides or systems have changed."""
    try:
        today = decide(present.schema, candidates, pins_of(present, sorted(holding)), overrides)
    except Unplaceable:
        return set()
    return {(move.node, move.proposed, move.required) for move in today.moves}


def _reinterpreted(
    new: Schema, old: Schema, holding: set[str], dropped: Collection[str]
) -> list[dict[str, Any]]:
    """Return which stored values the new schema would decode differently, or not at all."""
    plan = []
    for class_name in sorted(holding):
        before = old.classes[class_name]
        after = new.classes.get(class_name)
        for name, field in before.fields.items():
            if f"{class_name}.{name}" in dropped:
                continue
            now = after.fields.get(name) if after else None
            if now is None or (now.type, now.items) != (field.type, field.items):
                became = "nothing" if now is None else now.type.value
                reason = f"stored as {field.type.value}, declared as {became}"
                if now is None and after is not None:
                    reason += _meant(field, before, after)
                if now is not None:
                    reason += "; add a field of the new type, and copy the values"
                plan.append({"node": f"{class_name}.{name}", "reason": reason})
        if after is None and not before.fields:
            plan.append({"node": class_name, "reason": "the class is gone"})
    return plan


def _meant(field: Field, before: ClassSchema, after: ClassSchema) -> str:
    """Say what to pass for a field that is gone: it was renamed, if one of its type is new."""
    alike = (
        name
        for name, new in after.fields.items()
        if name not in before.fields and (new.type, new.items) == (field.type, field.items)
    )
    name = next(alike, None)
    node = f"{before.name}.{field.name}"
    if name is None:
        return f"; to drop it with its values, pass drop={node}"
    return f"; to rename it, pass rename={node}:{name}"


def without(fragments: Sequence[Fragment], others: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments whose location none of the others has."""
    locations = set(map(location_of, others))
    return [fragment for fragment in fragments if location_of(fragment) not in locations]


def replaced(
    present: DatabaseRoute | None, new: DatabaseRoute, holding: Collection[str]
) -> list[Fragment]:
    """Return the fragments of empty classes that change: later writes to them would be lost."""
    return [
        fragment
        for fragment in fragments_of(present)
        if fragment.class_name not in holding
        and (
            (now := same_place(new, fragment)) is None
            or (fragment.fields, fragment.groups, fragment.unique, fragment.indexes)
            != (now.fields, now.groups, now.unique, now.indexes)
        )
    ]


def left_behind(
    present: DatabaseRoute | None,
    new: DatabaseRoute,
    holding: Collection[str],
    dropped: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return which systems would keep data of a class that is no longer placed there.

    One that only holds fields that are `dropped` (``class.field``) may be left.
    """
    reason = "the class leaves its system"
    return [
        {"node": f.class_name, "from": f.system, "to": None, "reason": reason}
        for f in without(fragments_of(present), fragments_of(new))
        if f.class_name in holding and not _is_dropped(f, new, dropped)
    ]


def _is_dropped(fragment: Fragment, new: DatabaseRoute, dropped: Collection[str]) -> bool:
    """Whether a fragment goes with all its fields, and its objects stay: they exist elsewhere."""
    route = new.classes.get(fragment.class_name)
    stays = route is not None and route.anchor.system == fragment.anchor_system != fragment.system
    return stays and all(f"{fragment.class_name}.{name}" in dropped for name in fragment.fields)


def check_dropped(names: frozenset[str], schema: Schema, present: DatabaseRoute | None) -> None:
    """Raise `Invalid` if nodes that are to be dropped are not there, or stay in the schema."""
    known, after = _nodes(present.schema if present else None), _nodes(schema)
    wrong = [f"{name} is in the new schema" for name in sorted(names & after)]
    for name in sorted(names - known):
        what = "field" if "." in name else "class"
        alike = (each for each in known if ("." in each) is ("." in name))
        wrong.append(f"there is no {what} {name}{did_you_mean(name, alike)}")
    if wrong:
        locations = [Location("drop", reason) for reason in wrong[:MAX_ERRORS]]
        raise Invalid("Classes or fields cannot be dropped.", locations=locations)


def _nodes(schema: Schema | None) -> set[str]:
    classes = schema.classes if schema else {}
    return {*classes, *(f"{name}.{field}" for name, c in classes.items() for field in c.fields)}


def check_unique(plan: SchemaPlan) -> None:
    """Refuse unique constraints that no system decides, or that cannot be built over objects.

    Raises:
        Conflict: Fields of one are on several systems, or are renamed by the same change.
    """
    added = plan.added_unique
    locations = [
        Location(f"{each.location}/{each.constraint}", reason)
        for name, class_ in plan.schema.classes.items()
        for each in unique_constraints(class_, class_.unique_constraints).values()
        if (reason := _obstacle(plan, name, each.unique, each.unique in added.get(name, ())))
    ]
    if locations:
        detail = "Unique constraints cannot be put in force."
        raise Conflict(detail, locations=locations[:MAX_ERRORS])


def _obstacle(plan: SchemaPlan, class_name: str, names: tuple[str, ...], is_added: bool) -> str:
    """Say what keeps a unique constraint from being in force; empty: nothing."""
    if is_added and class_name in plan.options.rename:
        return "needs a change of its own, as this one renames fields of the class"
    for route in (plan.route, plan.present if is_added else None):
        placed = route.classes.get(class_name) if route is not None else None
        if placed is not None and not any(f.fields.keys() >= set(names) for f in placed.fragments):
            return "is of fields whose values are on several systems"
    return ""


def check_indexes(route: DatabaseRoute) -> None:
    """Raise `Conflict` if fields of a compound index are on several systems.

    Those of a class without objects are placed together; where objects are, their fields stay.
    """
    locations = [
        Location(f"/classes/{name}/indexes/{i}/fields", f"are on {' and '.join(systems)}")
        for name, class_ in route.classes.items()
        for i, index in enumerate(class_.schema.indexes)
        if len(systems := {class_.fragment_of[field].system: None for field in index.fields}) > 1
    ]
    if locations:
        detail = "A compound index is of fields that one system holds; these are on several."
        raise Conflict(detail, locations=locations)


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What a change does.

    Attributes:
        moves: What it would move between systems, which forbids it.
        epoch: That of the routing model which it was planned under.
        moved: The copies whose sources it drops, of classes that hold objects.
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
        """The unique constraints that are added over objects, those being built among them.

        A field that is new has no values.
        """
        added, builds = {}, self.builds
        for name in sorted(self.holding & self.schema.classes.keys()):
            assert self.present is not None
            before, build = self.present.schema.classes[name], builds.get(name)
            kept = {*before.unique_constraints} - {*(build.unique if build else ())}
            added[name] = tuple(
                names
                for names in self.schema.classes[name].unique_constraints
                if names not in kept and before.fields.keys() >= set(names)
            )
        return {name: unique for name, unique in added.items() if unique}

    @property
    def dropped_classes(self) -> frozenset[str]:
        return frozenset(node for node in self.options.drop if "." not in node)

    @property
    def dropped_fields(self) -> Constraints:
        """The fields that are dropped, each as a constraint that every value breaks."""
        nodes = [tuple(node.split(".")) for node in sorted(self.options.drop) if "." in node]
        return {
            (class_name, name, _DROPPED): TightenedConstraint(
                class_name, name, _DROPPED, lambda _: False
            )
            for class_name, name in nodes
            if class_name in self.holding
        }

    @property
    def leaving(self) -> frozenset[str]:
        """The classes with objects that leave a system: its fields of them are dropped."""
        left = without(fragments_of(self.present), fragments_of(self.route))
        return self.holding & {fragment.class_name for fragment in left}

    @property
    def moved_classes(self) -> set[str]:
        """The classes whose values are in other fields, and those that have these."""
        return {name for each in self.moved for name in (each.class_name, each.source_class)}

    @property
    def gives_names_anew(self) -> bool:
        """Whether a name means another field than a replica that is behind may take it for."""
        kept = self.before.renamed.layout if self.before.renamed else {}
        return bool(self.options.rename or self.dropped_fields) or any(
            not each["names"].items() <= kept.get(name, {}).get("names", {}).items()
            for name, each in self.new.layout.items()
        )

    def constraints(self, options: ChangeOptions) -> tuple[Constraints, Constraints]:
        """Return what existing objects have to be checked for, and what they get a default for."""
        filled = backfillable(self.schema, self.holding) if options.backfill else {}
        if options.unchecked or self.present is None:
            return {}, filled
        tighter = dict(tightened(self.present.schema, self.schema, self.holding))
        for name, added in self.added_unique.items():
            tighter |= unique_constraints(self.schema.classes[name], added)
        left = {key: each for key, each in sorted(tighter.items()) if key not in filled}
        return left, filled

    @property
    def newly_connected(self) -> set[str]:
        """The classes that are there, and that foreign keys connect from this change on."""
        if self.present is None:
            return set()
        added = added_foreign_keys(self.present.schema, self.schema)
        connected = {name for key in added for name in (key.class_name, key.to)}
        return connected & self.present.classes.keys()

    @property
    def former_names(self) -> dict[str, dict[str, str]]:
        """The names that renamed fields have so far, by class and new name."""
        renames = self.options.rename.items()
        return {name: {new: old for old, new in names.items()} for name, names in renames}

    @property
    def owned(self) -> set[str]:
        """The classes whose objects have owners, before the change or after it."""
        schemas = [self.schema, *([self.present.schema] if self.present else [])]
        return {name for s in schemas for name, c in s.classes.items() if c.owner_field}


def decide_change(
    schema: Schema,
    present: DatabaseRoute | None,
    holding: set[str],
    candidates: Sequence[Candidate],
    overrides: Overrides,
    dropped: Collection[str] = (),
) -> tuple[Decision, list[dict[str, Any]]]:
    """Decide placements; classes that hold data stay, and the moves of the change are returned.

    Fields that are `dropped` (``class.field``) may leave them.
    """
    if present is None or not holding:
        return decide(schema, candidates, overrides=overrides), []
    decision = decide(schema, candidates, pins_of(present, sorted(holding)), overrides)
    kept = {n: each for n, each in present.overrides.items() if overrides.get(n) == each}
    moved_anyway = _drifted(present, candidates, holding, kept)
    moves = [
        {"node": m.node, "from": m.current, "to": m.proposed, "reason": m.reason}
        for m in decision.moves
        # Scores that have drifted since the last schema are no reason to refuse this one, nor is
        # an override that has ended.
        if (m.node, m.proposed, m.required) not in moved_anyway
    ]
    return decision, moves + _reinterpreted(schema, present.schema, holding, dropped)


def without_copies(systems: Systems) -> list[str]:
    return [guarded.name for guarded in systems if not isinstance(guarded.store, Mirror)]


def check_view(schema: Schema, view: str | None, systems: Systems) -> None:
    if schema.mode is not Mode.MICROBATCHED:
        return
    pointer = "/materialised_view"
    mistake = "no system that takes copies is proven for scans, sorting and range queries"
    if view is not None:
        if view not in without_copies(systems):
            return
        pointer, mistake = f"{pointer}/system", f"{view} cannot hold copies of objects"
    locations = [Location(pointer, mistake)]
    raise SchemaInvalid(f"There can be no materialised view: {mistake}.", locations=locations)


def notes_on_view(schema: Schema, views: ViewService) -> list[str]:
    if schema.mode is not Mode.MICROBATCHED or views.is_active:
        return []
    return ["Without a coordination Redis nothing is copied into the view: it answers no reads."]
