"""Builds unique constraints over the objects of classes, before a schema with them is in force.

Order of events, and the state that a crash in between leaves:

1. writes to the class are held, and joint writes waited for;   the hold, which ends by itself
2. the stores are prepared (columns, indexes);                  the hold
3. the layout gets a *build*: from then on each write, on any   the build, which any client
   replica, claims its values, or is refused;                   continues by the same change;
4. every object gets its claims, page by page;                  abandoned after `ABANDON_AFTER_S`
5. the schema is put in force, if the build still exists.       nothing

An object whose claim another object holds ends the build, and nothing is changed. Why no duplicate
slips through: docs/schema.md, "Unique constraints that are added".
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

__all__ = ["ABANDON_AFTER_S", "BUILD_S", "Builds", "UniqueBuilds"]

BUILD_S: Final = 60.0
"""Seconds for which one request makes claims; the next request continues."""

ABANDON_AFTER_S: Final = 600.0
"""Seconds after which a build that nobody continues is abandoned."""

Builds: TypeAlias = Mapping[str, UniqueBuild]
"""Builds in progress, by class."""


@dataclass(eq=False)
class UniqueBuilds:
    """Builds unique constraints for the changes of this replica."""

    _catalogue: CatalogueSchemas
    _plane: DataPlane
    _follower: Follower
    _cutover: Cutover
    sweep: ClaimSweep
    clock: Clock

    async def start(self, plan: SchemaPlan, finished_ids: Collection[str]) -> Builds:
        """Start or continue the builds that a change needs; returns the unfinished ones.

        `finished_ids` are the ids of the builds that have ended.
        """
        present, builds, new = plan.builds, dict[str, UniqueBuild](), dict[str, UniqueBuild]()
        for name, unique in plan.added_unique.items():
            build = present.get(name)
            if build is None or set(build.unique) != set(unique):
                build = new[name] = UniqueBuild(uuid4().hex, unique, self._until())
            if build.id not in finished_ids:
                builds[name] = build
        if new:
            assert plan.stored is not None
            await self._cutover.put_layout(_with_builds(plan.stored, new), plan.stored, new.keys())
        return builds

    async def finish(self, plan: SchemaPlan, builds: Builds) -> set[str]:
        """Make the claims of all objects; returns the ids of the builds.

        Raises:
            ConstraintViolated: Objects have the same values; the builds are abandoned.
            Conflict: The time was too short for all of them; the next request continues.
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
                    await self._abandon(database, {abandoned.id for abandoned in builds.values()})
                    _refuse(plan, class_name, duplicates)
                after = page[-1].id
        return {build.id for build in builds.values()}

    async def abandon_overdue(self) -> None:
        """Abandon builds that nobody continues.

        Raises:
            Unavailable: The catalogue does not answer; the next run retries.
            Conflict: Somebody changes the schema; the next run retries.
        """
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        for stored in self._follower.all():
            overdue = {name for name, build in builds_of(stored).items() if build.until < now}
            if overdue:
                await self._put(_with_builds(stored, dict.fromkeys(overdue)), stored)

    async def _pause(self, database: str, class_name: str, build: UniqueBuild) -> None:
        """Record the progress of a build, from which the next request continues; raises."""
        stored = self._follower.stored(database)
        current = builds_of(stored).get(class_name) if stored is not None else None
        if stored is not None and current is not None and current.id == build.id:
            paused = {class_name: replace(build, until=self._until())}
            await self._put(_with_builds(stored, paused), stored)
        raise Conflict(
            f"Not all objects of {class_name} have claimed their values yet: that takes more than"
            f" {BUILD_S:g} s. Send the same request again within {ABANDON_AFTER_S:g} s to continue;"
            " otherwise nothing was changed."
        )

    async def _abandon(self, database: str, ids: Collection[str]) -> None:
        stored = self._follower.stored(database)
        if stored is not None:
            abandoned_classes = {
                name for name, build in builds_of(stored).items() if build.id in ids
            }
            with suppress(MediatorError):  # then they are abandoned once overdue
                await self._put(_with_builds(stored, dict.fromkeys(abandoned_classes)), stored)

    async def _put(self, stored: StoredDatabase, former: StoredDatabase) -> None:
        route = await offload(True, route_of, stored)
        moment, put = await self._catalogue.put_layout(replace(stored, hold=None), former)
        self._follower.adopt_put(moment, put, route)

    def _until(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC) + timedelta(seconds=ABANDON_AFTER_S)


def _with_builds(
    stored: StoredDatabase, builds: Mapping[str, UniqueBuild | None]
) -> StoredDatabase:
    layouts = {
        name: {**stored.layout[name], "building": build.to_json() if build else None}
        for name, build in builds.items()
    }
    return replace(stored, layout={**stored.layout, **layouts})


def _refuse(plan: SchemaPlan, class_name: str, duplicates: Mapping[str, TakenClaim]) -> NoReturn:
    """Raise `ConstraintViolated`, with ids of objects that have the same values."""
    max_ids = 0 if class_name in plan.owned_classes else SAMPLE
    class_, violations = plan.schema.classes[class_name], []
    for constraint in unique_constraints(class_, class_.unique_constraints).values():
        name = constraint_name(constraint.unique)
        twins = {id_: taken.holder for id_, taken in duplicates.items() if taken.constraint == name}
        sample = [id_ for twin in twins.items() for id_ in twin][:max_ids]
        if twins:
            violations.append(ConstraintViolation(constraint, len(twins), len(twins), sample))
    CheckReport(violations).require_clean()
    raise AssertionError("each duplicate is of a constraint that is being built")
