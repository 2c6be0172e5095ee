"""Foreign keys in transactions: targets must exist, and not be deleted concurrently.

A write that sets a foreign key reads the target object under its own intents, and names it in the
log when it begins. A deletion sets its intents, waits for logged writes that name its objects, and
only then searches for referring objects. So one of the two always finds the other
(docs/transactions.md, "Foreign keys").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from mediator.base.concurrency import concurrently
from mediator.base.errors import DanglingReference, Location
from mediator.model.operations import Create, Delete, Put, ReadModifyWrite, Update, WriteOperation
from mediator.model.operators import Operator
from mediator.operations.backoff import Backoff
from mediator.operations.intents import ForeignIntents
from mediator.routing.model import ClassRoute
from mediator.schema.errors import token
from mediator.schema.foreign_keys import ForeignKey
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.types import Values
from mediator.stores.port import RecordKey, WriteKind
from mediator.transactions.log import State, TransactionEntry, TransactionLog
from mediator.transactions.model import WriteBlocked
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.referential_actions import Actions, ObjectKey, still_referenced
from mediator.transactions.resolver import TransactionResolver

__all__ = [
    "ForeignKeyChecks",
    "check_rewritten",
    "deletions",
    "is_checked",
    "reachable",
    "referenced_objects",
]

ANY: Final = ""
"""Stands for an id that is known only after another object is read."""

_MAX_LOGGED: Final = 1_000
"""Limit of referenced objects that an entry of the log names."""

MAX_WAIT_S: Final = 1.0
"""How long a deletion waits, with its intents set, for writes that refer to its objects."""

_OPEN: Final = (State.PREPARING, State.STAGED, State.COMMITTED)
_FULL_WRITES: Final = (WriteKind.CREATE, WriteKind.REPLACE)
_ADDING: Final = frozenset({Operator.PUSH, Operator.PUSH_FRONT, Operator.ADD_TO_SET})


def is_checked(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether foreign keys make a write check other objects, and thus a transaction."""
    if isinstance(operation, Delete):
        return bool(route.referenced_by) and not operation.unchecked
    return any(True for _ in _references(route, operation))


def _references(route: ClassRoute, operation: WriteOperation) -> Iterator[ObjectKey]:
    """Yield the objects to which a write may add references."""
    if isinstance(operation, Delete) or (
        isinstance(operation, Put | Update) and operation.unchecked
    ):
        return
    for key in route.foreign_keys:
        if isinstance(operation, ReadModifyWrite):
            yield key.to, ANY
        else:
            yield from ((key.to, target) for target in _targets(operation, key))


def _targets(operation: Create | Put | Update, key: ForeignKey) -> list[str]:
    """Return the target ids that a write sets, including those that operators add."""
    value = operation.values.get(key.field)
    targets = [] if value is None else key.targets_of(value)
    if key.is_array and isinstance(operation, Update):
        targets += [
            call.argument
            for call in operation.operators
            if call.field == key.field
            and call.operator in _ADDING
            and isinstance(call.argument, str)
        ]
    return targets


def referenced_objects(
    routes: Mapping[str, ClassRoute], operations: Iterable[WriteOperation]
) -> list[ObjectKey]:
    """Return the objects to which writes may add references; if too many, only classes."""
    references = (_references(routes[operation.class_name], operation) for operation in operations)
    objects = dict.fromkeys(target for targets in references for target in targets)
    if len(objects) > _MAX_LOGGED:
        return list(dict.fromkeys((class_name, ANY) for class_name, _ in objects))
    return list(objects)


def deletions(
    routes: Mapping[str, ClassRoute], operations: Iterable[WriteOperation]
) -> list[ObjectKey]:
    """Return the objects that writes delete; none if no foreign key refers to any of them."""
    deletes = [operation for operation in operations if isinstance(operation, Delete)]
    if not any(is_checked(routes[operation.class_name], operation) for operation in deletes):
        return []
    return [(operation.class_name, operation.id) for operation in deletes]


def reachable(classes: Mapping[str, ClassRoute], operations: Iterable[WriteOperation]) -> set[str]:
    """Return the further classes that foreign keys involve in a transaction."""
    class_names: set[str] = set()
    pending: list[str] = []
    for operation in operations:
        route = classes.get(operation.class_name)
        if route is not None and is_checked(route, operation):
            if isinstance(operation, Delete):
                pending.append(operation.class_name)
            else:
                class_names.update(key.to for key in route.foreign_keys)
    while pending:
        for key in classes[pending.pop()].referenced_by:
            if key.class_name not in class_names:
                class_names.add(key.class_name)
                pending.append(key.class_name)
    return class_names


@dataclass(frozen=True)
class ForeignKeyChecks:
    """Checks foreign keys of a transaction once its intents are set."""

    _log: TransactionLog
    _resolver: TransactionResolver

    async def wait_for_referring(
        self, entry: TransactionEntry, deleted: Sequence[ObjectKey]
    ) -> None:
        """Wait for earlier writes that may add references to deleted objects.

        Later writes find the intents on these.

        Raises:
            WriteBlocked: They take too long.
            Unavailable: The catalogue does not answer.
        """
        classes = dict.fromkeys(class_name for class_name, _ in deleted)
        records = [*deleted, *((name, ANY) for name in classes)]
        entries = await self._log.find_open(entry.database, records)
        backoff = Backoff(MAX_WAIT_S)
        while waiting := [
            i for i in entries if i != entry.intent and not self._resolver.is_over(i)
        ]:
            if backoff.is_exhausted:
                raise WriteBlocked
            await backoff.wait_for(dict.fromkeys(waiting, ()), self)
            entries = {
                intent: logged
                for intent, logged in (await self._log.find(waiting)).items()
                if logged.state in _OPEN
            }

    async def resolve(self, foreign_intents: ForeignIntents) -> None:
        """Resolve writes that were found in the log, unless they are over."""
        entries = await self._log.find(list(foreign_intents))
        await concurrently(self._resolver.resolve_found(entry, ()) for entry in entries.values())

    async def require_targets(
        self,
        writes: Sequence[WriteOperation],
        prepared: Sequence[PreparedOperation],
        routes: Mapping[str, ClassRoute],
        intent: str,
    ) -> dict[str, list[RecordKey]]:
        """Check that all objects exist to which writes add references.

        Objects that the transaction writes exist, those that it deletes do not: `prepared` has
        first its `writes`, then its referential actions.

        Returns:
            The referenced records with foreign intents: until these are gone, the transaction
            must not commit.

        Raises:
            DanglingReference: A target is missing.
        """
        pairs = zip(writes, prepared, strict=False)
        references = [
            key for write, operation in pairs for key in _new_references(write, operation)
        ]
        written = {(p.target.route.schema.name, p.target.id): _exists(p) for p in prepared}
        looked_up = dict.fromkeys(
            (key.to, id_) for key, id_, _ in references if (key.to, id_) not in written
        )
        keys = [(routes[class_name].anchor, id_) for class_name, id_ in looked_up]
        states = await self._resolver.intents.record_states(keys) if keys else []
        foreign_intents: dict[str, list[RecordKey]] = {}
        for key, state in zip(keys, states, strict=True):
            if state.intent not in ("", intent):
                foreign_intents.setdefault(state.intent, []).append(key)
        if foreign_intents:
            return foreign_intents
        exists = {
            target: s.creation_version is not None
            for target, s in zip(looked_up, states, strict=True)
        }
        exists |= written
        if missing := [r for r in references if not exists[r[0].to, r[1]]]:
            raise _dangling(missing)
        return {}


def check_rewritten(actions: Actions, prepared: Sequence[PreparedOperation]) -> None:
    """Raise `StillReferenced` if a written object still refers to a deleted one."""
    written = {
        (operation.target.route.schema.name, operation.target.id): operation
        for operation in prepared
    }
    referring: dict[ForeignKey, list[str]] = {}
    for key, id_ in actions.rewritten:
        if not _drops_references(written[key.class_name, id_], key, actions.deleted_of(key.to)):
            referring.setdefault(key, []).append(id_)
    if referring:
        raise still_referenced(referring)


def _new_references(
    operation: WriteOperation, prepared: PreparedOperation
) -> Iterator[tuple[ForeignKey, str, str]]:
    """Yield the foreign keys that a write sets, with the target id and the object's id."""
    if isinstance(operation, Delete):
        return
    values: Values = {}
    if isinstance(operation, ReadModifyWrite):
        steps = () if prepared.steps is None else prepared.steps.all
        values = {name: value for write in steps for name, value in write.values.items()}
    for key in prepared.target.route.foreign_keys:
        targets = (
            key.targets_of(values.get(key.field))
            if isinstance(operation, ReadModifyWrite)
            else _targets(operation, key)
        )
        yield from ((key, target, operation.id) for target in targets)


def _exists(prepared: PreparedOperation) -> bool:
    """Whether the object exists after a write."""
    return prepared.steps is None or prepared.steps.first.kind is not WriteKind.DELETE


def _drops_references(
    prepared: PreparedOperation, key: ForeignKey, deleted: AbstractSet[str]
) -> bool:
    """Whether a write removes an object's references, by a key, to deleted objects."""
    if not key.is_array:
        return _overwrites(prepared, key.field)
    steps = () if prepared.steps is None else prepared.steps.all
    removed = {
        call.argument
        for write in steps
        for call in write.operators
        if call.field == key.field and call.operator is Operator.REMOVE
    }
    if removed:
        return removed >= deleted
    values = [write.values.get(key.field) for write in steps]
    return _overwrites(prepared, key.field) and not any(
        not deleted.isdisjoint(key.targets_of(value)) for value in values
    )


def _overwrites(prepared: PreparedOperation, name: str) -> bool:
    """Whether a write sets or removes a field."""
    steps = () if prepared.steps is None else prepared.steps.all
    return any(
        name in write.values
        or name in write.unset
        or (write.kind in _FULL_WRITES and name in write.fragment.fields)
        for write in steps
    )


def _dangling(missing: Sequence[tuple[ForeignKey, str, str]]) -> DanglingReference:
    locations = [
        Location(token(key.field), f"{key.to}/{target} does not exist")
        for key, target, _ in missing[:MAX_ERRORS]
    ]
    key, target, id_ = missing[0]
    detail = f"{key.class_name}/{id_} would refer to {key.to}/{target}, which does not exist."
    return DanglingReference(f"{detail} Nothing was written.", locations=locations)
