"""Building unique constraints over the objects of classes, before a schema with them is in force.

Order of events, with what a crash in between leaves behind:

1. writes to the class are held, and joint writes waited for;   the hold, which ends by itself
2. the stores are prepared (columns, indexes);                  the hold
3. the layout has a *build*: from then on each write, on any    the build, which anybody goes on
   replica, claims what it writes, or is refused;               with by the same change; after
4. every object gets its claims, page by page;                  `KEPT_S` it is abandoned
5. the schema is put in force, if the build is still there.     nothing

An object that cannot get a claim, since another one has it, ends the build, and nothing was
changed. Why no duplicate slips through: docs/schema.md, "Unique constraints that are added".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, TypeAlias
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.errors import Conflict, MediatorError
from mediator.base.offload import offload
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.catalogue.stored_databases import StoredDatabase
from mediator.control.claim_sweep import ClaimSweep
from mediator.control.constraint_check import SAMPLE, CheckReport, ConstraintViolation
from mediator.control.cutover import Cutover
from mediator.control.follower import Follower
from mediator.control.layout import UniqueBuild, builds_of, route_of
from mediator.control.schema_plan import SchemaPlan
from mediator.data_plane.port import DataPlane, pages
from mediator.schema.tightening import unique_constraints
from mediator.schema.unique import constraint_name
from mediator.stores.port import TakenClaim

__all__ = ["BUILD_S", "KEPT_S", "Builds", "UniqueBuilds"]

BUILD_S: Final = 60.0
"""Seconds for which one request makes claims; the next one goes on."""

KEPT_S: Final = 600.0
"""Seconds after which a build is abandoned with which nobody has gone on."""

Builds: TypeAlias = Mapping[str, UniqueBuild]
"""What is being built, by class."""


@dataclass(eq=False)
class UniqueBuilds:
    """Builds unique constraints for the changes of this replica."""

    _catalogue: CatalogueSchemas
    _plane: DataPlane
    _follower: Follower
    _cutover: Cutover
    sweep: ClaimSweep
    clock: Clock

    async def begin(self, plan: SchemaPlan, done: Collection[str]) -> Builds:
        """Begin what has to be built before a change, or go on with it; returns what is left.

        `done`: the ids of the builds that have ended.
        """
        present, builds, new = plan.builds, dict[str, UniqueBuild](), dict[str, UniqueBuild]()
        for name, unique in plan.added_unique.items():
            build = present.get(name)
            if build is None or set(build.unique) != set(unique):
                build = new[name] = UniqueBuild(uuid4().hex, unique, self._until())
            if build.id not in done:
                builds[name] = build
        if new:
            assert plan.stored is not None
            await self._cutover.put_layout(_with_builds(plan.stored, new), plan.stored, new.keys())
        return builds

    async def finish(self, plan: SchemaPlan, builds: Builds) -> set[str]:
        """Make the claims of all objects; returns the ids of the builds.

        Raises:
            ConstraintViolated: Objects have the same values; the builds are abandoned.
            Conflict: There was no time for all of them; the next request goes on.
        """
        database, until = plan.schema.database, self.clock.monotonic() + BUILD_S
        for class_name, build in builds.items():
            route, after = await self._plane.route(database, class_name), build.after
            fields = tuple(sorted({name for names in build.unique for name in names}))
            async for page in pages(self._plane, database, class_name, after, fields):
                if self.clock.monotonic() >= until:
                    await self._pause(database, class_name, replace(build, after=after))
                duplicates = await self.sweep.claim(route, build.unique, page)
                if duplicates:
                    await self._abandon(database, {each.id for each in builds.values()})
                    _refuse(plan, class_name, duplicates)
                after = page[-1].id
        return {build.id for build in builds.values()}

    async def abandon_overdue(self) -> None:
        """Abandon builds with which nobody has gone on.

        Raises:
            Unavailable: The catalogue does not answer; the next run does it.
            Conflict: Somebody changes the schema; the next run does it.
        """
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        for stored in self._follower.all():
            overdue = {name for name, build in builds_of(stored).items() if build.until < now}
            if overdue:
                await self._put(_with_builds(stored, dict.fromkeys(overdue)), stored)

    async def _pause(self, database: str, class_name: str, build: UniqueBuild) -> None:
        """Note how far a build has come, so that the next request goes on there; raises."""
        stored = self._follower.stored(database)
        current = builds_of(stored).get(class_name) if stored is not None else None
        if stored is not None and current is not None and current.id == build.id:
            kept = {class_name: replace(build, until=self._until())}
            await self._put(_with_builds(stored, kept), stored)
        raise Conflict(
            f"Not all objects of {class_name} have claimed their values yet: that takes more than"
            f" {BUILD_S:g} s. Send the same request again within {KEPT_S:g} s to go on; else"
            " nothing was changed."
        )

    async def _abandon(self, database: str, ids: Collection[str]) -> None:
        stored = self._follower.stored(database)
        if stored is not None:
            own = {name for name, build in builds_of(stored).items() if build.id in ids}
            with suppress(MediatorError):  # then they are abandoned when they are overdue
                await self._put(_with_builds(stored, dict.fromkeys(own)), stored)

    async def _put(self, stored: StoredDatabase, former: StoredDatabase) -> None:
        route = await offload(True, route_of, stored)
        moment, put = await self._catalogue.put_layout(replace(stored, hold=None), former)
        self._follower.has_put(moment, put, route)

    def _until(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC) + timedelta(seconds=KEPT_S)


def _with_builds(
    stored: StoredDatabase, builds: Mapping[str, UniqueBuild | None]
) -> StoredDatabase:
    layouts = {
        name: {**stored.layout[name], "building": build.to_json() if build else None}
        for name, build in builds.items()
    }
    return replace(stored, layout={**stored.layout, **layouts})


def _refuse(plan: SchemaPlan, class_name: str, duplicates: Mapping[str, TakenClaim]) -> NoReturn:
    """Raise `ConstraintViolated`, which names objects that have the same values."""
    named = 0 if class_name in plan.owned else SAMPLE
    class_, found = plan.schema.classes[class_name], []
    for constraint in unique_constraints(class_, class_.unique_constraints).values():
        name = constraint_name(constraint.unique)
        twins = {id_: each.holder for id_, each in duplicates.items() if each.constraint == name}
        sample = [id_ for twin in twins.items() for id_ in twin][:named]
        if twins:
            found.append(ConstraintViolation(constraint, len(twins), len(twins), sample))
    CheckReport(found).require_clean()
    raise AssertionError("each duplicate is of a constraint that is being built")
