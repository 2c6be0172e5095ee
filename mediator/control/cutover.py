"""Puts a schema plan in force: prepares the stores, stores the plan, and updates every replica.

Order of events, and the state that a crash in between leaves:

1. the new layout is decided, under a lock of this replica;     nothing
2. writes to empty classes that are about to change are held,   the hold, which ends by itself
   by all replicas;
3. those classes are still empty, and moved values are in
   their target fields;                                         the hold
4. the stores are prepared (tables, indexes), idempotently,
   by one replica at a time, if the version is the one seen;     unused tables, and the hold
5. the catalogue is changed, if its version is the one seen     the next start serves the new model
   and the hold still stands;
6. the new routing model is put in force;
7. unused fragments are dropped, and indexes once no replica    unused tables and indexes
   searches by them.

A write that is held is refused (503); a retry finds the new location. Why no acknowledged write is
lost, whichever replica stalls at whichever step: docs/replicas.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from mediator.base.errors import Conflict, PreconditionFailed, Unavailable
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import Author, ChangeRecord
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import Moment, StoredDatabase
from mediator.control.clearing import Clearing
from mediator.control.effects import replaced_fragments, without
from mediator.control.follower import Follower
from mediator.control.layout import (
    copies_of,
    fragments_of,
    indexes_of,
    route_of,
    same_location,
    with_catalogue_state,
)
from mediator.control.membership import Membership
from mediator.control.moves import MoveCheck
from mediator.control.schema_plan import SchemaPlan
from mediator.data_plane.executor import Executor
from mediator.materialisation.service import ViewService
from mediator.operations.fragment_calls import FragmentCalls
from mediator.routing.model import DatabaseRoute
from mediator.schema.differences import change_counts
from mediator.schema.name_changes import name_changes
from mediator.stores.port import Fragment, Lockable, Store, is_claiming

__all__ = ["Cutover"]

_WRITE_CHECKS: Final = 20
_WRITE_CHECK_S: Final = 0.1


@dataclass(eq=False)
class Cutover:
    """Puts plans in force, one at a time on each replica."""

    _catalogue: CatalogueSchemas
    _executor: Executor
    _follower: Follower
    _membership: Membership
    _views: ViewService
    _clearing: Clearing
    _calls: FragmentCalls
    _moves: MoveCheck

    async def put_in_force(self, plan: SchemaPlan, author: Author | None) -> int:
        if plan.reuses_names:
            # No replica may be two changes behind, and mistake a name for another field's.
            await self._membership.agree(plan.epoch)
        emptied = {f.class_name for f in replaced_fragments(plan.present, plan.route, plan.holding)}
        changing = emptied | plan.leaving_classes
        # No replica may delete, or refer to, objects that a foreign key protects by a model without
        # it. Nor may one write a field that is dropped after its copy, or keep an old claim.
        held_classes = changing | plan.newly_connected | plan.moved_classes | plan.newly_unique
        if plan.stored is None or not held_classes:
            moment, put = await self._prepare_and_put(plan, plan.new, author)
        else:
            async with self._held(plan.stored, held_classes) as held:
                await self.check_still_empty(plan, changing)
                await self.check_unwritten(plan.new.name, held_classes)
                await self._moves.require(plan.schema.database, plan.moved, plan.owned_classes)
                new = replace(plan.new, hold=held.hold)
                moment, put = await self._prepare_and_put(plan, new, author)
        self._follower.adopt_put(moment, put, with_catalogue_state(plan.route, put))
        before = (fragments_of(plan.present), copies_of(plan.present))
        after = (fragments_of(plan.route), copies_of(plan.route))
        for fragment in chain.from_iterable(map(without, before, after)):
            # The change is in force. A table that stays behind is empty or of a dropped class, and
            # its generation is never used again.
            with suppress(Unavailable):
                await self._calls.on(fragment, "write", _drop_call(fragment))
        await self._remove_indexes(plan, put, moment.epoch)
        return moment.epoch

    async def _remove_indexes(self, plan: SchemaPlan, put: StoredDatabase, epoch: int) -> None:
        """Have stores remove unused indexes, once no replica searches by them."""
        for fragment in fragments_of(plan.route):
            previous = same_location(plan.present, fragment)
            if previous is None or indexes_of(previous).keys() <= indexes_of(fragment).keys():
                continue
            # Else the next change of the class does it, which may be in force already.
            with suppress(Unavailable, Conflict, PreconditionFailed):
                await self._membership.agree(epoch)
                async with self._catalogue.exclusive(put, put.version, put):
                    await self._calls.on(fragment, "write", _prepare_call(fragment, fragment))

    async def _prepare_and_put(
        self, plan: SchemaPlan, new: StoredDatabase, author: Author | None
    ) -> tuple[Moment, StoredDatabase]:
        seen_version = plan.stored.version if plan.stored else 0
        async with self._catalogue.exclusive(new, seen_version, plan.stored):
            # First: replicas write by the new layout as soon as the catalogue has it.
            await self._prepare(fragments_of(plan.route), plan.present)
            # The state of a former copy of this name does not describe the new one.
            copies = copies_of(plan.route)
            await self._views.retract(without(copies, copies_of(plan.present)))
            for copy in copies:
                await self._calls.on(copy, "write", _prepare_call(copy, None))
            change = await offload(True, _change_record, plan, new.document, author)
            return await self._catalogue.put(new, change, plan.stored, plan.before.history)

    async def _prepare(self, fragments: Iterable[Fragment], present: DatabaseRoute | None) -> None:
        for fragment in fragments:
            previous = same_location(present, fragment)
            await self._calls.on(fragment, "write", _prepare_call(fragment, previous))

    async def put_layout(
        self, new: StoredDatabase, former: StoredDatabase, classes: Collection[str]
    ) -> None:
        """Put a layout in force that changes how some classes are written."""
        route = await offload(True, route_of, new)
        fragments = [f for f in fragments_of(route) if f.class_name in classes]
        present = self._executor.model.databases[new.name]
        # First without the hold: a large index takes longer than writes can wait.
        async with self._catalogue.exclusive(former, former.version, former):
            await self._prepare(fragments, present)
        async with self._held(former, classes) as held:
            await self.check_unwritten(new.name, classes)
            under_hold = replace(new, hold=held.hold)
            async with self._catalogue.exclusive(under_hold, former.version, former):
                await self._prepare(fragments, present)
                moment, put = await self._catalogue.put_layout(under_hold, former)
        self._follower.adopt_put(moment, put, route)

    async def check_still_empty(self, plan: SchemaPlan, changing: Collection[str]) -> None:
        """Refuse if an object was created since its class was found empty; writes are held.

        A class that only leaves a system can have objects.
        """
        assert plan.present is not None
        for name in sorted({*changing} - plan.dropped_classes - plan.leaving_classes):
            if await self._calls.count(plan.present.classes[name]):
                raise Conflict(f"Objects of {name} were created meanwhile; try again.")

    async def check_unwritten(self, database: str, classes: Collection[str]) -> None:
        """Refuse if writes to held classes are under way, and do not end."""
        # A joint write may be logged before it reaches a record that is counted. One that has
        # ended is still logged for a moment.
        for _ in range(_WRITE_CHECKS):
            if not await self._catalogue.are_written(database, classes):
                return
            await asyncio.sleep(_WRITE_CHECK_S)
        raise Conflict(f"Writes to {', '.join(sorted(classes))} are under way; try again.")

    @asynccontextmanager
    async def _held(
        self, stored: StoredDatabase, classes: Collection[str]
    ) -> AsyncIterator[StoredDatabase]:
        """Hold writes to classes, on all replicas, while the block runs; yields the database."""
        moment, held = await self._catalogue.hold(stored, classes)
        try:
            await self._follower.adopt_update(moment, held)
            await self._membership.agree(moment.epoch)
            yield held
        except BaseException:
            # A block that succeeds has ended the hold by its change. If only the reply was lost,
            # there is nothing to release, and the change is read from the catalogue.
            with suppress(Unavailable):  # then it expires
                assert held.hold is not None
                await self._catalogue.release(held.hold)
                await self._follower.catch_up()
            raise

    async def drop(self, stored: StoredDatabase, route: DatabaseRoute) -> None:
        async with self._held(stored, route.classes.keys()) as held:
            moment = await self._catalogue.remove(held)
        self._follower.adopt_removal(moment, stored.name)
        with suppress(Unavailable):  # then a later run clears it
            await self._clearing.run()


def _change_record(
    plan: SchemaPlan, document: Mapping[str, Any], author: Author | None
) -> ChangeRecord:
    """Return the record of a change that leads to a schema."""
    before, renames = plan.before, plan.options.rename
    counts = change_counts(before.renamed.document if before.renamed else {}, document)
    if renames:
        counts["renamed"] = sum(map(len, renames.values()))
    former = before.stored.document if before.stored else {}
    names = name_changes(former, document, renames, plan.options.restored)
    return ChangeRecord(author, counts, names)


def _drop_call(fragment: Fragment) -> Callable[[Store], Coroutine[Any, Any, None]]:
    return lambda store: store.drop(fragment)


def _prepare_call(
    fragment: Fragment, previous: Fragment | None
) -> Callable[[Store], Coroutine[Any, Any, None]]:
    async def prepare(store: Store) -> None:
        if fragment.joint and not isinstance(store, Lockable):
            raise Conflict(
                f"The system {fragment.system} takes no part in writes over several systems, so it"
                f" can only hold {fragment.class_name} as a whole: bind all of the class to it, or"
                " to other systems."
            )
        if fragment.unique and not is_claiming(store):
            raise Conflict(
                f"The system {fragment.system} keeps no values unique, as {fragment.class_name} has"
                " them: bind the fields to another system."
            )
        await store.prepare(fragment, previous)

    return prepare
