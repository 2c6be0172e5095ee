"""A run under way: how far it is, and the way to end it. Two threads share it."""

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

_LINES: Final = 100

StageState = Literal["waiting", "running", "done"]


@dataclass(slots=True)
class StageProgress:
    """How far a stage is.

    Attributes:
        name: Its name.
        state: Whether it waits, runs, or has ended well.
        done: Tasks that are done, of `total`; 0 of 0: not known.
        total: Tasks in all.
        rows: Rows that it gave.
        seconds: How long it has taken.
    """

    name: str
    state: StageState = "waiting"
    done: int = 0
    total: int = 0
    rows: int = 0
    seconds: float = 0.0


class Control:
    """What a run tells while it goes; and it ends soon after `cancel`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._held_until = inf
        self._outward = self._lapsed = False
        self._stages: dict[str, StageProgress] = {}
        self._counters: dict[str, int] = {}
        self._log: deque[str] = deque(maxlen=_LINES)
        self._began = monotonic()
        self._stage_began = 0.0
        self._forecast: Forecast | None = None
        self._before_s = 0.0

    def cancel(self) -> None:
        """Ask the run to end."""
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        """Whether it is to end."""
        return self._cancelled.is_set()

    def hold(self, until: float) -> None:
        """Note until when, on the monotonic clock, nobody else is given the run."""
        self._held_until = until

    def go_outward(self) -> None:
        """Begin with what others see, which takes a run that nobody else has.

        What is kept under an attempt spoils nothing. But whoever takes the run over writes the
        result that was kept when he took it; another one must not get among it.

        Raises:
            RunCancelled: It may have been given to somebody else, or is to end.
        """
        self._outward = True
        self.check()

    @property
    def lapsed(self) -> bool:
        """Whether it ends for that: it stays so, though its worker may be heard again meanwhile."""
        return self._lapsed

    def check(self) -> None:
        """Raise `RunCancelled` if the run is to end, or somebody else may have it."""
        if self._outward and monotonic() >= self._held_until:
            self._lapsed = True
        if self.cancelled or self._lapsed:
            raise RunCancelled

    @property
    def forecast(self) -> Forecast | None:
        """What the run will cost, as soon as that is known."""
        return self._forecast

    def foretell(self, forecast: Forecast) -> None:
        """Note the forecast."""
        self._forecast = forecast
        with self._lock:
            self._before_s = self._spent_s()
        for note in forecast.notes:
            self.say(note)

    def plan(self, names: Iterable[str]) -> None:
        """Say which stages there will be."""
        with self._lock:
            self._stages |= {name: StageProgress(name) for name in names}

    def begin(self, name: str) -> None:
        """Note that a stage began."""
        with self._lock:
            self._stages[name].state = "running"
            self._stage_began = monotonic()
        self.say(f"{name} began.")

    def end(self, name: str, *, rows: int, seconds: float, counters: Mapping[str, int]) -> None:
        """Note that a stage ended well, or had ended in an earlier attempt."""
        with self._lock:
            stage = self._stages[name]
            stage.state, stage.rows, stage.seconds = "done", rows, seconds
            stage.total = stage.done = max(stage.total, 1)
            for counter, value in counters.items():
                self._counters[counter] = self._counters.get(counter, 0) + value
        self.say(f"{name} ended after {seconds:.1f} s, with {rows:,} rows.")

    def advance(self, name: str, done: int, total: int) -> None:
        """Note how far a stage is."""
        with self._lock:
            stage = self._stages[name]
            stage.done, stage.total = done, total

    def say(self, line: str) -> None:
        """Add a line to the log of the run."""
        with self._lock:
            self._log.append(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}")

    def snapshot(self) -> dict[str, Any]:
        """Return all of it as JSON: stages, counters, log, elapsed_s, eta_s."""
        with self._lock:
            running = next((s for s in self._stages.values() if s.state == "running"), None)
            if running is not None:
                running.seconds = monotonic() - self._stage_began
            return {
                "stages": [asdict(stage) for stage in self._stages.values()],
                "counters": dict(self._counters),
                "log": list(self._log),
                "elapsed_s": round(monotonic() - self._began, 3),
                "eta_s": self._eta_s(running),
            }

    def _eta_s(self, running: StageProgress | None) -> float | None:
        """What is left: by the pace of the stage if that is more than was foretold."""
        if self._forecast is None or running is None:
            return None
        # Reading and forecasting are not in the forecast.
        foretold = max(0.0, self._forecast.time_s - (self._spent_s() - self._before_s))
        paced = 0.0
        if running.done:
            paced = running.seconds * (running.total - running.done) / running.done
        return round(max(foretold, paced), 3)

    def _spent_s(self) -> float:
        return sum(stage.seconds for stage in self._stages.values())
