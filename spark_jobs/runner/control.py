"""Progress, lease and cancellation of an active run, shared by two threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Any, Final, Literal

from spark_jobs.runner.port import Forecast, RunCancelled

__all__ = ["Control", "StageProgress"]

_MAX_LOG_LINES: Final = 100

StageState = Literal["waiting", "running", "done"]


@dataclass(slots=True)
class StageProgress:
    """The progress of a stage: `done` of `total` tasks, 0 of 0 if unknown."""

    name: str
    state: StageState = "waiting"
    done: int = 0
    total: int = 0
    rows: int = 0
    seconds: float = 0.0


class Control:
    """The state of a run: its progress, its log, its cancellation and its lease.

    Attributes:
        forecast: None until it is known.
        lease_lost: Whether the run ends because its lease expired; later heartbeats do not undo it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._lease_until = inf
        self._publishing = self.lease_lost = False
        self._stages: dict[str, StageProgress] = {}
        self._counters: dict[str, int] = {}
        self._log: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._started_at = monotonic()
        self._stage_started_at = 0.0
        self.forecast: Forecast | None = None
        self._excluded_s = 0.0

    def cancel(self) -> None:
        self._cancelled.set()

    def wait_for_cancel(self, timeout_s: float) -> bool:
        return self._cancelled.wait(timeout_s)

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def hold_until(self, deadline: float) -> None:
        """Set the end of the lease, on the monotonic clock."""
        self._lease_until = deadline

    @property
    def holds_lease(self) -> bool:
        """Whether the lease has certainly not expired: no other worker can hold the run."""
        return monotonic() < self._lease_until

    def start_publishing(self) -> None:
        """Start writing into a class; only the holder of the lease may.

        Files of an attempt are private to it. A class is not: the next holder of the run writes the
        result stored at its takeover, and its writes must not interleave with this holder's.

        Raises:
            RunCancelled: The lease has expired, or the run must end.
        """
        self._publishing = True
        self.check()

    def check(self) -> None:
        """Raise `RunCancelled` if the run must end, or its lease has expired."""
        if self._publishing and not self.holds_lease:
            self.lease_lost = True
        if self.cancelled or self.lease_lost:
            raise RunCancelled

    def set_forecast(self, forecast: Forecast) -> None:
        self.forecast = forecast
        with self._lock:
            self._excluded_s = self._spent_s()
        for note in forecast.notes:
            self.log(note)

    def plan(self, names: Iterable[str]) -> None:
        with self._lock:
            self._stages |= {name: StageProgress(name) for name in names}

    def start(self, name: str) -> None:
        with self._lock:
            self._stages[name].state = "running"
            self._stage_started_at = monotonic()
        self.log(f"{name} began.")

    def end(self, name: str, *, rows: int, seconds: float, counters: Mapping[str, int]) -> None:
        """Record that a stage finished, now or in an earlier attempt."""
        with self._lock:
            stage = self._stages[name]
            stage.state, stage.rows, stage.seconds = "done", rows, seconds
            stage.total = stage.done = max(stage.total, 1)
            for counter, value in counters.items():
                self._counters[counter] = self._counters.get(counter, 0) + value
        self.log(f"{name} ended after {seconds:.1f} s, with {rows:,} rows.")

    def advance(self, name: str, done: int, total: int) -> None:
        with self._lock:
            stage = self._stages[name]
            stage.done, stage.total = done, total

    def log(self, line: str) -> None:
        with self._lock:
            self._log.append(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}")

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON: stages, counters, log, elapsed_s, eta_s."""
        with self._lock:
            running = next((s for s in self._stages.values() if s.state == "running"), None)
            if running is not None:
                running.seconds = monotonic() - self._stage_started_at
            return {
                "stages": [asdict(stage) for stage in self._stages.values()],
                "counters": dict(self._counters),
                "log": list(self._log),
                "elapsed_s": round(monotonic() - self._started_at, 3),
                "eta_s": self._eta_s(running),
            }

    def _eta_s(self, running: StageProgress | None) -> float | None:
        """Seconds remaining, by the forecast or by the stage's own pace, whichever is more."""
        if self.forecast is None or running is None:
            return None
        # Reading and forecasting are not in the forecast.
        forecast_s = max(0.0, self.forecast.time_s - (self._spent_s() - self._excluded_s))
        pace_s = 0.0
        if running.done:
            pace_s = running.seconds * (running.total - running.done) / running.done
        return round(max(forecast_s, pace_s), 3)

    def _spent_s(self) -> float:
        return sum(stage.seconds for stage in self._stages.values())
