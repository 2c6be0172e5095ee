"""Times by key, and which of them have passed."""

from __future__ import annotations

from heapq import heappop, heappush

__all__ = ["Deadlines"]


class Deadlines:
    """Keys with a time each; adding and taking costs amortised logarithmic time."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: str) -> bool:
        return key in self._times

    def of(self, key: str) -> int:
        """Return the time of a key; 0 if it has none."""
        return self._times.get(key, 0)

    def first(self) -> int | None:
        """Return the earliest time; None: there are no keys."""
        while self._queue:
            queued, key = self._queue[0]
            time = self._times.get(key)
            if self._queued.get(key) == queued == time:
                return time
            heappop(self._queue)
            if self._queued.get(key) == queued:
                del self._queued[key]
                if time is not None:
                    self.put(key, time)
        return None

    def due(self, now: int) -> int:
        """Return how many times are not after `now`."""
        return sum(time <= now for time in self._times.values())

    def put(self, key: str, time: int) -> None:
        """Set the time of a key."""
        self._times[key] = time
        # A later time is found when the earlier one comes up.
        if key not in self._queued or time < self._queued[key]:
            self._queued[key] = time
            heappush(self._queue, (time, key))

    def extend(self, key: str, until: int) -> None:
        """Set the time of a key, by maximum."""
        self.put(key, max(until, self.of(key)))

    def discard(self, key: str) -> None:
        """Forget a key; its place in the queue goes when it comes up."""
        self._times.pop(key, None)

    def take(self, now: int, most: int) -> list[str]:
        """Remove keys whose time is not after `now`, at most so many; return them in order."""
        taken: list[str] = []
        while self._queue and self._queue[0][0] <= now and len(taken) < most:
            queued, key = heappop(self._queue)
            if self._queued.get(key) != queued:
                continue
            del self._queued[key]
            time = self._times.get(key)
            if time is not None and time > now:
                self.put(key, time)
            elif time is not None:
                del self._times[key]
                taken.append(key)
        return taken
