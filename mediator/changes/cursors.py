"""Where a relay stands in the logs of its system, for each database's feed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mediator.changes.feed import Feed, FeedWentBack, Source

__all__ = ["Cursors"]


class Cursors:
    """What a relay believes the feeds' cursors to be, and how far it has read itself.

    A relay that begins reads a log from the least of them, and then goes on where it is. Cursors of
    databases of which it finds nothing stay behind, and are brought up from time to time: who reads
    again what lies between finds nothing of these databases, and what was brought of others is
    taken once. A database that has none gets one before any other moves on, at the place from which
    the log is being read: so that skips nothing of it.

    Args:
        feed: The feeds.
        system: The system.
        logs: Its logs.
    """

    def __init__(self, feed: Feed, system: str, logs: Sequence[str]) -> None:
        self._feed = feed
        self._system = system
        self._held: dict[str, dict[str, str]] = {log: {} for log in logs}
        self._reached: dict[tuple[str, str], str] = {}
        self._read: dict[str, str] = {}
        self._databases: tuple[str, ...] | None = None

    async def load(self, databases: Iterable[str]) -> bool:
        """Ask the feeds, if that has not been done for these databases; tell whether it was.

        Raises:
            FeedWentBack: A feed has less than it had. They have been loaded all the same.
        """
        wanted = tuple(databases)
        if wanted == self._databases:
            return False
        loaded: dict[str, dict[str, str]] = {log: {} for log in self._held}
        for database in wanted:
            for log, cursor in (await self._feed.cursors(database, self._system)).items():
                if log in loaded:
                    loaded[log][database] = cursor
        for log, held in loaded.items():
            least = min(held.values(), default="")
            for database in set(wanted) - held.keys():
                at = "" if (database, log) in self._reached else least
                await self._feed.begin(database, Source(self._system, log), at)
                held[database] = at
        self._held, self._databases = loaded, wanted
        reached, self._reached = self._reached, {}
        if any(loaded[log][d] < c for (d, log), c in reached.items() if d in wanted):
            raise FeedWentBack
        return True

    def forget(self, *, reached: bool = False) -> None:
        """Ask again the next time: the feed may not be what it was.

        Args:
            reached: Whether it is known, and told, that it went back.
        """
        self._databases = None
        self._read = {}
        if reached:
            self._reached = {}

    def start(self, log: str) -> str:
        """Return the place from which a log is to be read."""
        return self._read.get(log) or self.least(log)

    def read(self, log: str, upto: str) -> None:
        """Note how far a log was read, and brought."""
        self._read[log] = upto

    def least(self, log: str) -> str:
        """Return the place from which another relay would read a log."""
        return min(self._held[log].values(), default="")

    def of(self, log: str) -> Mapping[str, str]:
        """Return the cursors of a log, by database."""
        return self._held[log]

    def of_database(self, database: str) -> Mapping[str, str]:
        """Return the cursors of a database, by log."""
        return {log: held[database] for log, held in self._held.items() if database in held}

    async def begin(self, log: str, database: str, at: str) -> None:
        """Give a database its cursor of a log."""
        await self._feed.begin(database, Source(self._system, log), at)
        self._held[log][database] = at

    def move(self, log: str, database: str, to: str) -> None:
        """Note that a cursor is at a place, or beyond."""
        self._held[log][database] = self._reached[database, log] = to
