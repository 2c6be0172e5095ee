"""Rounds: what one partition of the feed tells is brought into the view.

A round asks first up to when the feed is complete, then reads what is new in it, then copies the
objects concerned as they are by then, and only then says up to when the copies are complete. In any
other order it would promise what it has not done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mediator.base.lease import Lease
from mediator.changes.feed import Feed, PositionGone
from mediator.materialisation.build import Build
from mediator.materialisation.builds import Builds
from mediator.materialisation.condense import Work, condense
from mediator.materialisation.copier import Copier
from mediator.materialisation.figures import Figures
from mediator.materialisation.isolation import Bringer, Brought
from mediator.materialisation.state import CopyState, PartitionState, Step, ViewState
from mediator.materialisation.watermarks import place_of
from mediator.model.change import Change
from mediator.routing.model import ClassRoute

__all__ = ["Rounds", "Slot"]

PAGE: Final = 1_000
MOST_PAGES: Final = 20
"""Pages of changes in one round: they have to fit into memory, and the cursor has to move."""

MOST_STUCK: Final = 1_000
"""Objects remembered that cannot be copied; beyond, the copy is built anew."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One partition of a database's feed (`database`: its id), to be materialised under a lease."""

    database: str
    partition: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class _News:
    """What is new in the feed; `anew`: what came before cannot be known."""

    pages: list[list[Change]]
    cursor: str
    whole: bool
    anew: bool = False


class Rounds:
    """The rounds of one partition, while its lease is held.

    Args:
        slot: The partition.
        routes: Returns the classes that have a copy, by name.
        feed: The feed.
        state: What is known of the copies.
        copier: Copies objects.
        bringer: Copies objects, some of which may not be fit for it.
        builds: The builds of this partition.
    """

    def __init__(
        self,
        slot: Slot,
        routes: Callable[[], Mapping[str, ClassRoute]],
        feed: Feed,
        state: ViewState,
        copier: Copier,
        bringer: Bringer,
        builds: Builds,
    ) -> None:
        self.figures = Figures()
        self._slot = slot
        self._routes = routes
        self._feed = feed
        self._state = state
        self._copier = copier
        self._bringer = bringer
        self._builds = builds

    async def round(self) -> bool:
        """Bring what is new; return whether that was all there is.

        Raises:
            Unavailable: A store or the feed does not answer; the cursor stays.
            LeaseLost: The partition is another's.
        """
        slot, routes = self._slot, self._routes()
        self.figures.error = self._builds.error()
        known = await self._state.load(slot.database, slot.partition)
        built = self._builds.done()
        until = await self._feed.relayed_until(slot.database)
        news = await self._news(known.cursor)
        steps, begun = await self._steps(routes, known, until, news, built)
        cursor = (known.cursor, news.cursor)
        await self._state.advance(slot.database, slot.partition, cursor, steps, slot.lease)
        self._builds.drop(built)
        await self._builds.begin(begun)
        self._count(news, built.values())
        return news.whole

    async def _steps(
        self,
        routes: Mapping[str, ClassRoute],
        known: PartitionState,
        until: Mapping[str, int],
        news: _News,
        built: Mapping[str, Build],
    ) -> tuple[list[Step], dict[str, Build]]:
        """Copy what is to be copied; return what becomes of the copies, and builds to be begun."""
        work = condense(news.pages, routes)
        steps: list[Step] = []
        begun: dict[str, Build] = {}
        for name, route in routes.items():
            copy = _name_of(route)
            before = known.copies.get(copy)
            if before is None or news.anew or self._builds.is_needed(copy, before):
                begun[copy] = self._builds.make(route)
                after: CopyState | None = CopyState(build=begun[copy].token)
            else:
                brought = await self._bring(route, work.get(name, Work()), before)
                complete = _until(route, until) if news.whole else None
                after = _next(before, brought, complete, built.get(copy))
            steps.append(Step(copy, before, after))
        gone = sorted(known.copies.keys() - {step.copy for step in steps})
        return steps + [Step(copy, known.copies[copy], None) for copy in gone], begun

    async def _news(self, cursor: str | None) -> _News:
        """Read what is beyond the cursor."""
        database, partition = self._slot.database, self._slot.partition
        life = await self._feed.generation(database)
        before, _, after = (cursor or "").partition("/")
        if before == life:
            with suppress(PositionGone):
                pages, after, whole = await self._read(after)
                return _News(pages, f"{life}/{after}", whole)
        last = await self._feed.last(database, partition)
        return _News([], f"{life}/{last}", whole=True, anew=True)

    async def _read(self, after: str) -> tuple[list[list[Change]], str, bool]:
        pages: list[list[Change]] = []
        while len(pages) < MOST_PAGES:
            page = await self._feed.read(self._slot.database, self._slot.partition, after, PAGE)
            pages.append([change for _, change in page])
            if len(page) < PAGE:
                return pages, page[-1][0] if page else after, True
            after = page[-1][0]
        return pages, after, False

    async def _bring(self, route: ClassRoute, work: Work, before: CopyState) -> Brought:
        """Forget the dead, copy the rest; what was stuck before is tried again."""
        if work.dead:
            await self._copier.forget(route, work.dead)
        dirty = [*{**dict.fromkeys(before.stuck), **work.dirty}]
        brought = await self._bringer.bring(route, dirty)
        self.figures.add(route.schema.name, brought.written, len(work.dead), len(dirty))
        self.figures.error = brought.error or self.figures.error
        return brought

    def _count(self, news: _News, built: Iterable[Build]) -> None:
        self.figures.rounds += 1
        self.figures.changes += sum(map(len, news.pages))
        self.figures.builds = self._builds.progress()
        for build in built:
            self.figures.add(build.class_name, written=build.brought.written)


def _name_of(route: ClassRoute) -> str:
    assert route.copy is not None
    return place_of(route.copy)[1]


def _until(route: ClassRoute, until: Mapping[str, int]) -> int | None:
    """Return up to when the feed has all that was acknowledged of a class."""
    times = [until.get(fragment.system) for fragment in route.fragments]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None


def _next(
    before: CopyState, brought: Brought, complete: int | None, build: Build | None
) -> CopyState | None:
    """Say what becomes of a copy after a round.

    Args:
        before: What was known of it.
        brought: What came of copying what was new.
        complete: Up to when that was all; None: it was not.
        build: A build that had come to its end when the round began.
    """
    if before.build and (build is None or build.token != before.build):
        return CopyState(None, before.build, brought.stuck)
    stuck = brought.stuck + (build.brought.stuck if before.build and build else ())
    if len(stuck) > MOST_STUCK:
        return None
    if stuck or complete is None:
        return CopyState(before.until_tick, "", stuck)
    return CopyState(max(complete, before.until_tick or 0))
