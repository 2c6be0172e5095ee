"""The cursors of a relay in the logs of its system, for each database's feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mediator.changes.feed import Feed, FeedRolledBack, LogSource

__all__ = ["LogCursors"]


class LogCursors:
    """The feeds' cursors, as a relay last saw them, and how far it has read.

    A relay reads a log from the lowest cursor on. Cursors of databases without changes stay behind
    and are moved from time to time: entries that are read a second time have no changes of these
    databases, and changes of other databases take effect once.
    """

    def __init__(self, feed: Feed, system: str, logs: Sequence[str]) -> None:
        self._feed = feed
        self._system = system
        self._cursors: dict[str, dict[str, str]] = {log: {} for log in logs}
        self._reached: dict[tuple[str, str], str] = {}
        self._read: dict[str, str] = {}
        self._databases: tuple[str, ...] | None = None

    async def load(self, databases: Iterable[str]) -> bool:
        """Load the cursors of these databases if not yet loaded; return whether it loaded them.

        Raises:
            FeedRolledBack: A feed has lost changes. The cursors have been loaded nevertheless.
        """
        requested = tuple(databases)
        if requested == self._databases:
            return False
        loaded: dict[str, dict[str, str]] = {log: {} for log in self._cursors}
        for database in requested:
            for log, cursor in (await self._feed.cursors(database, self._system)).items():
                if log in loaded:
                    loaded[log][database] = cursor
        for log, cursors in loaded.items():
            lowest = min(cursors.values(), default="")
            for database in set(requested) - cursors.keys():
                # A feed that lost this cursor may lack everything that the log keeps.
                position = "" if (database, log) in self._reached else lowest
                await self._feed.create_cursor(database, LogSource(self._system, log), position)
                cursors[database] = position
        self._cursors, self._databases = loaded, requested
        reached, self._reached = self._reached, {}
        if any(loaded[log][d] < c for (d, log), c in reached.items() if d in requested):
            raise FeedRolledBack
        return True

    def forget(self, *, reached: bool = False) -> None:
        """Reload cursors next time: the feed may have lost changes; `reached`: it certainly has."""
        self._databases = None
        self._read = {}
        if reached:
            self._reached = {}

    def start(self, log: str) -> str:
        return self._read.get(log) or self.lowest(log)

    def read(self, log: str, upto: str) -> None:
        self._read[log] = upto

    def lowest(self, log: str) -> str:
        return min(self._cursors[log].values(), default="")

    def of(self, log: str) -> Mapping[str, str]:
        return self._cursors[log]

    def of_database(self, database: str) -> Mapping[str, str]:
        return {
            log: cursors[database] for log, cursors in self._cursors.items() if database in cursors
        }

    async def create(self, log: str, database: str, position: str) -> None:
        await self._feed.create_cursor(database, LogSource(self._system, log), position)
        self._cursors[log][database] = position

    def move(self, log: str, database: str, to: str) -> None:
        """Record that a cursor is at a position or after it."""
        self._cursors[log][database] = self._reached[database, log] = to
