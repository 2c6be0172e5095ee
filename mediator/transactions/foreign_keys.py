"""Foreign keys in transactions: what is referred to exists, and is not deleted at the same time.

A write that sets a foreign key reads the object that it refers to, under its own intents, and names
it in the log when it begins. A deletion sets its intents, waits for the writes in the log that name
what it deletes, and only then searches for what refers to it. So of the two one finds the other
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
    "announced",
    "check_rewritten",
    "deletions",
    "is_checked",
    "reachable",
]

ANY: Final = ""
"""In place of an id: which object it is shows only once another one has been read."""

_ANNOUNCED: Final = 1_000
"""Objects that an entry of the log names because they are referred to."""

MAX_WAIT_S: Final = 1.0
"""How long a deletion waits, with its intents set, for writes that refer to its objects."""

_OPEN: Final = (State.PREPARING, State.STAGED, State.COMMITTED)
_WHOLE: Final = (WriteKind.CREATE, WriteKind.REPLACE)
_ADDING: Final = frozenset({Operator.PUSH, Operator.PUSH_FRONT, Operator.ADD_TO_SET})


def is_checked(route: ClassRoute, operation: WriteOperation) -> bool:
    """Whether a foreign key makes a write look at other objects, and so a transaction."""
    if isinstance(operation, Delete):
        return bool(route.referenced_by) and not operation.unchecked
    return any(True for _ in _references(route, operation))


def _references(route: ClassRoute, operation: WriteOperation) -> Iterator[ObjectKey]:
    """Yield the objects to which a write may make its own refer."""
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
    """Return the ids to which a write makes its object refer, those that operators add too."""
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


def announced(
    routes: Mapping[str, ClassRoute], operations: Iterable[WriteOperation]
) -> list[ObjectKey]:
    """Return the objects to which writes may make others refer; of many only their classes."""
    each = (_references(routes[operation.class_name], operation) for operation in operations)
    found = dict.fromkeys(target for targets in each for target in targets)
    if len(found) > _ANNOUNCED:
        return list(dict.fromkeys((class_name, ANY) for class_name, _ in found))
    return list(found)


def deletions(
    routes: Mapping[str, ClassRoute], operations: Iterable[WriteOperation]
) -> list[ObjectKey]:
    """Return the objects that writes delete; none if no foreign key refers to any of them."""
    deletes = [operation for operation in operations if isinstance(operation, Delete)]
    if not any(is_checked(routes[operation.class_name], operation) for operation in deletes):
        return []
    return [(operation.class_name, operation.id) for operation in deletes]


def reachable(classes: Mapping[str, ClassRoute], operations: Iterable[WriteOperation]) -> set[str]:
    """Name the classes whose objects foreign keys bring into a transaction, beside its own."""
    found: set[str] = set()
    left: list[str] = []
    for operation in operations:
        route = classes.get(operation.class_name)
        if route is not None and is_checked(route, operation):
            if isinstance(operation, Delete):
                left.append(operation.class_name)
            else:
                found.update(key.to for key in route.foreign_keys)
    while left:
        for key in classes[left.pop()].referenced_by:
            if key.class_name not in found:
                found.add(key.class_name)
                left.append(key.class_name)
    return found


@dataclass(frozen=True)
class ForeignKeyChecks:
    """What a transaction checks of foreign keys once its intents are set."""

    _log: TransactionLog
    _resolver: TransactionResolver

    async def wait_for_referring(
        self, entry: TransactionEntry, deleted: Sequence[ObjectKey]
    ) -> None:
        """Wait for the writes that may make objects refer to what is deleted, and began before.

        Those that begin later find the intents on it.

        Raises:
            WriteBlocked: They take too long.
            Unavailable: The catalogue does not answer.
        """
        classes = dict.fromkeys(class_name for class_name, _ in deleted)
        records = [*deleted, *((name, ANY) for name in classes)]
        found = await self._log.find_open(entry.database, records)
        backoff = Backoff(MAX_WAIT_S)
        while left := [i for i in found if i != entry.intent and not self._resolver.is_over(i)]:
            if backoff.is_exhausted:
                raise WriteBlocked
            await backoff.wait_for(dict.fromkeys(left, ()), self)
            found = {
                intent: each
                for intent, each in (await self._log.find(left)).items()
                if each.state in _OPEN
            }

    async def resolve(self, met: ForeignIntents) -> None:
        """Resolve writes that were found in the log, as far as they are there still."""
        entries = await self._log.find(list(met))
        await concurrently(self._resolver.resolve_found(each, ()) for each in entries.values())

    async def require_targets(
        self,
        writes: Sequence[WriteOperation],
        prepared: Sequence[PreparedOperation],
        routes: Mapping[str, ClassRoute],
        intent: str,
    ) -> dict[str, list[RecordKey]]:
        """Check that there is everything to which writes make their objects refer.

        What a transaction writes itself is there, and what it deletes is not: `prepared` has
        first its `writes`, and then what follows from them.

        Returns:
            The records that are referred to and have intents of others: until these are gone, the
            transaction must not commit.

        Raises:
            DanglingReference: Something is missing.
        """
        pairs = zip(writes, prepared, strict=False)
        references = [each for write, one in pairs for each in _set_by(write, one)]
        own = {(one.target.route.schema.name, one.target.id): _exists(one) for one in prepared}
        looked_up = dict.fromkeys(
            (key.to, id_) for key, id_, _ in references if (key.to, id_) not in own
        )
        keys = [(routes[class_name].anchor, id_) for class_name, id_ in looked_up]
        states = await self._resolver.intents.record_states(keys) if keys else []
        met: dict[str, list[RecordKey]] = {}
        for key, state in zip(keys, states, strict=True):
            if state.intent not in ("", intent):
                met.setdefault(state.intent, []).append(key)
        if met:
            return met
        there = {
            each: s.creation_version is not None for each, s in zip(looked_up, states, strict=True)
        }
        there |= own
        if missing := [each for each in references if not there[each[0].to, each[1]]]:
            raise _dangling(missing)
        return {}


def check_rewritten(actions: Actions, prepared: Sequence[PreparedOperation]) -> None:
    """Raise `StillReferenced` if an object that is written goes on referring to a deleted one."""
    written = {(one.target.route.schema.name, one.target.id): one for one in prepared}
    left: dict[ForeignKey, list[str]] = {}
    for key, id_ in actions.rewritten:
        if not _lets_go(written[key.class_name, id_], key, actions.deleted_of(key.to)):
            left.setdefault(key, []).append(id_)
    if left:
        raise still_referenced(left)


def _set_by(
    operation: WriteOperation, prepared: PreparedOperation
) -> Iterator[tuple[ForeignKey, str, str]]:
    """Yield the foreign keys that a write sets, to what, and whose they are."""
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
    """Whether the object is there after a write."""
    return prepared.steps is None or prepared.steps.first.kind is not WriteKind.DELETE


def _lets_go(prepared: PreparedOperation, key: ForeignKey, deleted: AbstractSet[str]) -> bool:
    """Whether a write makes an object refer no longer, by a key, to what is deleted."""
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
    """Whether a write gives a field a value, or none."""
    steps = () if prepared.steps is None else prepared.steps.all
    return any(
        name in write.values
        or name in write.unset
        or (write.kind in _WHOLE and name in write.fragment.fields)
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
