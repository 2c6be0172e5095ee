"""The cursors of a relay in the logs of its system, for each database's feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mediator.changes.feed import Feed, FeedRolledBack, LogSource

__all__ = ["LogCursors"]


class LogCursors:
    """The feeds' cursors as a relay knows them, and how far it has read itself.

    A relay starts to read a log from the lowest cursor, and goes on from where it is. Cursors of
    databases without changes stay behind, and are moved from time to time: what is read again has
    nothing of these databases, and changes of others take effect once.
    """

    def __init__(self, feed: Feed, system: str, logs: Sequence[str]) -> None:
        self._feed = feed
        self._system = system
        self._cursors: dict[str, dict[str, str]] = {log: {} for log in logs}
        self._reached: dict[tuple[str, str], str] = {}
        self._read: dict[str, str] = {}
        self._databases: tuple[str, ...] | None = None

    async def load(self, databases: Iterable[str]) -> bool:
        """Load the cursors of these databases, unless they are; return whether they were loaded.

        Raises:
            FeedRolledBack: A feed has less than it had. The cursors have been loaded all the same.
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
            least = min(cursors.values(), default="")
            for database in set(requested) - cursors.keys():
                # A feed that had this cursor has lost it: all that the log keeps may be missing.
                at = "" if (database, log) in self._reached else least
                await self._feed.create_cursor(database, LogSource(self._system, log), at)
                cursors[database] = at
        self._cursors, self._databases = loaded, requested
        reached, self._reached = self._reached, {}
        if any(loaded[log][d] < c for (d, log), c in reached.items() if d in requested):
            raise FeedRolledBack
        return True

    def forget(self, *, reached: bool = False) -> None:
        """Load again the next time: the feed may have lost changes; `reached`: it certainly has."""
        self._databases = None
        self._read = {}
        if reached:
            self._reached = {}

    def start(self, log: str) -> str:
        return self._read.get(log) or self.least(log)

    def read(self, log: str, upto: str) -> None:
        self._read[log] = upto

    def least(self, log: str) -> str:
        return min(self._cursors[log].values(), default="")

    def of(self, log: str) -> Mapping[str, str]:
        return self._cursors[log]

    def of_database(self, database: str) -> Mapping[str, str]:
        return {log: held[database] for log, held in self._cursors.items() if database in held}

    async def create(self, log: str, database: str, at: str) -> None:
        await self._feed.create_cursor(database, LogSource(self._system, log), at)
        self._cursors[log][database] = at

    def move(self, log: str, database: str, to: str) -> None:
        """Record that a cursor is at a position, or after it."""
        self._cursors[log][database] = self._reached[database, log] = to
