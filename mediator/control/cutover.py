"""Putting a plan of a schema in force: prepare the stores, keep it, and follow it on every replica.

Order of events, with what a crash in between leaves behind:

1. the new layout is decided, under a lock of this replica;     nothing
2. writes to empty classes that are about to change are held,   the hold, which ends by itself
   by all replicas;
3. those classes are found to be empty still, and values that
   move to be where they go;                                    the hold
4. the stores are prepared (tables, indexes), idempotently,
   by one replica at a time, if the version is the one seen;     unused tables, and the hold
5. the catalogue is changed, if its version is the one seen     the next start serves the new model
   and the hold still stands;
6. the new routing model is put in force;
7. fragments that nothing uses any more are dropped, and        unused tables and indexes
   indexes, once no replica searches by them.

A write that is held is refused (503); a retry finds the new location. Why nothing
that was acknowledged is lost, whichever replica stalls at whichever step: docs/replicas.md.
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
from mediator.control.effects import replaced, without
from mediator.control.follower import Follower
from mediator.control.layout import (
    copies_of,
    fragments_of,
    indexes_of,
    route_of,
    same_place,
    with_what_is_kept,
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

_LOOKS: Final = 20
_LOOK_S: Final = 0.1


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
        if plan.gives_names_anew:
            # So no replica is two changes behind, and takes a name for that of another field.
            await self._membership.agree(plan.epoch)
        emptied = {f.class_name for f in replaced(plan.present, plan.route, plan.holding)}
        changing = emptied | plan.leaving
        # No replica may delete, or refer to, what a foreign key protects by a model without it.
        # Nor may one write what is dropped because it was copied, or leave a claim as it was.
        held_classes = changing | plan.newly_connected | plan.moved_classes | plan.newly_unique
        if plan.stored is None or not held_classes:
            moment, put = await self._prepare_and_put(plan, plan.new, author)
        else:
            async with self._held(plan.stored, held_classes) as held:
                await self.check_still_empty(plan, changing)
                await self.check_unwritten(plan.new.name, held_classes)
                await self._moves.require(plan.schema.database, plan.moved, plan.owned)
                new = replace(plan.new, hold=held.hold)
                moment, put = await self._prepare_and_put(plan, new, author)
        self._follower.has_put(moment, put, with_what_is_kept(plan.route, put))
        before = (fragments_of(plan.present), copies_of(plan.present))
        after = (fragments_of(plan.route), copies_of(plan.route))
        for fragment in chain.from_iterable(map(without, before, after)):
            # The change is in force. What may stay behind is of a generation that is never used
            # again: an empty table, or one of a class that is dropped.
            with suppress(Unavailable):
                await self._calls.on(fragment, "write", _dropping(fragment))
        await self._remove_indexes(plan, put, moment.epoch)
        return moment.epoch

    async def _remove_indexes(self, plan: SchemaPlan, put: StoredDatabase, epoch: int) -> None:
        """Have stores remove indexes that are no more, once no replica searches by them."""
        for fragment in fragments_of(plan.route):
            previous = same_place(plan.present, fragment)
            if previous is None or indexes_of(previous).keys() <= indexes_of(fragment).keys():
                continue
            # Else the next change of the class does it, which may be there already.
            with suppress(Unavailable, Conflict, PreconditionFailed):
                await self._membership.agree(epoch)
                async with self._catalogue.alone(put, put.version, put):
                    await self._calls.on(fragment, "write", _preparing(fragment, fragment))

    async def _prepare_and_put(
        self, plan: SchemaPlan, new: StoredDatabase, author: Author | None
    ) -> tuple[Moment, StoredDatabase]:
        seen = plan.stored.version if plan.stored else 0
        async with self._catalogue.alone(new, seen, plan.stored):
            # First: replicas that read the new layout in the catalogue write there at once.
            await self._prepare(fragments_of(plan.route), plan.present)
            # The state of a former copy of this name does not describe the new one.
            copies = copies_of(plan.route)
            await self._views.retract(without(copies, copies_of(plan.present)))
            for copy in copies:
                await self._calls.on(copy, "write", _preparing(copy, None))
            change = await offload(True, _recorded, plan, new.document, author)
            return await self._catalogue.put(new, change, plan.stored, plan.before.history)

    async def _prepare(self, fragments: Iterable[Fragment], present: DatabaseRoute | None) -> None:
        for fragment in fragments:
            previous = same_place(present, fragment)
            await self._calls.on(fragment, "write", _preparing(fragment, previous))

    async def put_layout(
        self, new: StoredDatabase, former: StoredDatabase, classes: Collection[str]
    ) -> None:
        """Put a layout in force by which some classes are written otherwise than before."""
        route = await offload(True, route_of, new)
        fragments = [f for f in fragments_of(route) if f.class_name in classes]
        present = self._executor.model.databases[new.name]
        # First without the hold: an index of many objects takes longer than writes may wait.
        async with self._catalogue.alone(former, former.version, former):
            await self._prepare(fragments, present)
        async with self._held(former, classes) as held:
            await self.check_unwritten(new.name, classes)
            under_hold = replace(new, hold=held.hold)
            async with self._catalogue.alone(under_hold, former.version, former):
                await self._prepare(fragments, present)
                moment, put = await self._catalogue.put_layout(under_hold, former)
        self._follower.has_put(moment, put, route)

    async def check_still_empty(self, plan: SchemaPlan, changing: Collection[str]) -> None:
        """Refuse if an object was created since its class was found empty; writes are held.

        A class that only leaves a system need not be empty.
        """
        assert plan.present is not None
        for name in sorted({*changing} - plan.dropped_classes - plan.leaving):
            if await self._calls.count(plan.present.classes[name]):
                raise Conflict(f"Objects of {name} were created meanwhile; try again.")

    async def check_unwritten(self, database: str, held: Collection[str]) -> None:
        """Refuse if writes to classes that are held are under way, and do not end."""
        # A joint write may be logged, and have reached no record that is counted. One that has
        # ended is still logged for a moment.
        for _ in range(_LOOKS):
            if not await self._catalogue.are_written(database, held):
                return
            await asyncio.sleep(_LOOK_S)
        raise Conflict(f"Writes to {', '.join(sorted(held))} are under way; try again.")

    @asynccontextmanager
    async def _held(
        self, stored: StoredDatabase, classes: Collection[str]
    ) -> AsyncIterator[StoredDatabase]:
        """Hold writes to classes, on all replicas, while the block runs; yields the database."""
        moment, held = await self._catalogue.hold(stored, classes)
        try:
            await self._follower.has_updated(moment, held)
            await self._membership.agree(moment.epoch)
            yield held
        except BaseException:
            # A block that succeeds has ended the hold by its change. If only the reply was lost,
            # there is nothing to release, and the change is read from the catalogue.
            with suppress(Unavailable):  # then it ends by itself
                assert held.hold is not None
                await self._catalogue.release(held.hold)
                await self._follower.catch_up()
            raise

    async def drop(self, stored: StoredDatabase, route: DatabaseRoute) -> None:
        async with self._held(stored, route.classes.keys()) as held:
            moment = await self._catalogue.remove(held)
        self._follower.has_removed(moment, stored.name)
        with suppress(Unavailable):  # then it is done later
            await self._clearing.run()


def _recorded(plan: SchemaPlan, document: Mapping[str, Any], author: Author | None) -> ChangeRecord:
    """Return what is kept of a change that leads to a schema."""
    before, renames = plan.before, plan.options.rename
    counts = change_counts(before.renamed.document if before.renamed else {}, document)
    if renames:
        counts["renamed"] = sum(map(len, renames.values()))
    former = before.stored.document if before.stored else {}
    names = name_changes(former, document, renames, plan.options.restored)
    return ChangeRecord(author, counts, names)


def _dropping(fragment: Fragment) -> Callable[[Store], Coroutine[Any, Any, None]]:
    return lambda store: store.drop(fragment)


def _preparing(
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
