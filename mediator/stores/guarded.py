"""A store behind a circuit breaker, with every round trip observed.

The breaker opens after several consecutive failures. While it is open, calls fail at once, so that
an unreachable store costs its callers nothing; after a pause it is half-open and admits one call as
a test. Pauses double up to a bound. The store bounds the time of each call
(`SystemConfig.deadline_s`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from mediator.base.clock import Clock, ServerClock
from mediator.base.observation import (
    CallOutcome,
    CircuitChanged,
    ClockSkewMeasured,
    Observer,
    StoreCallFinished,
)
from mediator.stores.port import (
    Fragment,
    Read,
    Record,
    RememberedOperation,
    Store,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreTooCostly,
    StoreUnavailable,
    Write,
    WriteResult,
)
from mediator.stores.renamed import with_stored_names

__all__ = ["Breaker", "CircuitOpen", "GuardedStore"]

FAILURES_TO_OPEN = 5
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 8.0

_T = TypeVar("_T")
_Direction: TypeAlias = Literal["read", "write"]
_Calls: TypeAlias = Sequence[Read] | Sequence[Write]


class CircuitOpen(StoreUnavailable):
    """The breaker is open: the store was not called."""


class Breaker:
    """A circuit breaker: counts consecutive failures, and admits or rejects calls.

    Attributes:
        suspended: Whether an operator has suspended the system; then no call is admitted.
    """

    def __init__(self, system: str, observe: Observer, clock: Clock) -> None:
        self._system = system
        self._observe = observe
        self._clock = clock
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._closed_at = 0.0
        self._half_open = False
        self.suspended = False

    @property
    def is_open(self) -> bool:
        return self._failures >= FAILURES_TO_OPEN

    @property
    def retry_after_s(self) -> float:
        """Seconds until the next call is admitted; 0 if calls are admitted now."""
        if self.suspended:
            return MAX_PAUSE_S
        return max(0.0, self._closed_at - self._clock.monotonic()) if self.is_open else 0.0

    def admit(self) -> None:
        """Admit a call, or raise `StoreUnavailable`."""
        if self.suspended:
            raise CircuitOpen(f"an operator has suspended {self._system}")
        if self._failures < FAILURES_TO_OPEN:
            return
        if self._half_open or self._clock.monotonic() < self._closed_at:
            raise CircuitOpen(f"{self._system} does not answer; calls to it are suspended")
        # Until this call has ended, all others fail at once.
        self._half_open = True

    def suspend(self, suspended: bool) -> None:
        """Reject all calls from now on, or admit them again."""
        if suspended is not self.suspended:
            self.suspended = suspended
            reason = "an operator has suspended it" if suspended else "its operator has resumed it"
            self._observe(CircuitChanged(self._system, open=suspended, reason=reason))

    def succeeded(self) -> None:
        if self._failures:
            was_open = self.is_open
            self._failures, self._pause_s, self._half_open = 0, FIRST_PAUSE_S, False
            if was_open:
                self._observe(CircuitChanged(self._system, open=False, reason="it answers again"))

    def failed(self, error: BaseException) -> None:
        self._failures += 1
        self._half_open = False
        now = self._clock.monotonic()
        if self._failures == FAILURES_TO_OPEN:
            self._observe(CircuitChanged(self._system, open=True, reason=str(error)))
        elif not self.is_open or now < self._closed_at:
            return  # a call that was sent before the breaker opened
        else:
            self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)
        self._closed_at = now + self._pause_s

    def abandoned(self) -> None:
        """End a call that the caller cancelled before the store replied."""
        self._half_open = False


class GuardedStore:
    """Reads and writes of one store, observed and guarded by a breaker.

    Attributes:
        store: The store, which takes fields by their names in the schema.
        time: An estimate of its clock, from which versions are taken.
    """

    def __init__(self, store: Store, observe: Observer, clock: Clock) -> None:
        self.store = with_stored_names(store)
        self.name = store.config.name
        self.breaker = Breaker(self.name, observe, clock)
        self.time = ServerClock(clock)
        self._observe = observe
        self._clock = clock

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        started = self._clock.monotonic()
        try:
            self.breaker.admit()
            records = await self.store.read(calls)
        except BaseException as error:
            self._failed("read", calls, started, error)
            raise
        self._succeeded("read", calls, started)
        return records

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        started = self._clock.monotonic()
        try:
            self.breaker.admit()
            results = await (self.store.write(calls, token) if token else self.store.write(calls))
        except BaseException as error:
            self._failed("write", calls, started, error)
            raise
        self._succeeded("write", calls, started)
        return results

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        return await self.guarded(lambda: self.store.recall(fragment, id_, operation))

    async def fence(self, fragment: Fragment, id_: str, token: str) -> Mapping[str, int]:
        return await self.guarded(lambda: self.store.fence(fragment, id_, token))

    async def guarded(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run any other call of the store under the breaker."""
        self.breaker.admit()
        try:
            result = await call()
        except BaseException as error:
            self._note(error)
            raise
        self.breaker.succeeded()
        return result

    async def read_clock(self) -> None:
        sent_at = self._clock.monotonic()
        self.time.read(await self.guarded(self.store.time_us), sent_at)
        assert self.time.skew_s is not None
        self._observe(ClockSkewMeasured(self.name, self.time.skew_s))

    def _succeeded(self, operation: _Direction, calls: _Calls, started: float) -> None:
        seconds = self._clock.monotonic() - started
        self.breaker.succeeded()
        self._report(operation, calls, seconds, "ok")

    def _failed(
        self, operation: _Direction, calls: _Calls, started: float, error: BaseException
    ) -> None:
        seconds = self._clock.monotonic() - started
        if not isinstance(error, CircuitOpen):
            self._note(error)
        if isinstance(error, StoreError):
            self._report(operation, calls, seconds, _outcome_of(error))

    def _note(self, error: BaseException) -> None:
        if isinstance(error, StoreRefused | StoreBusy | StoreTooCostly):
            self.breaker.succeeded()  # a refusal is a reply: the server is reachable
        elif isinstance(error, StoreError):
            self.breaker.failed(error)
        else:
            # A call that its caller cancelled says nothing about the store.
            self.breaker.abandoned()

    def _report(
        self, operation: _Direction, calls: _Calls, seconds: float, outcome: CallOutcome
    ) -> None:
        fragments = {c.fragment for c in calls} if len(calls) != 1 else (calls[0].fragment,)
        if len(fragments) == 1:
            [fragment] = fragments
            key = (fragment.database, fragment.class_name)
            counts: Mapping[tuple[str, str], int] = {key: len(calls)}
        else:
            counts = Counter((c.fragment.database, c.fragment.class_name) for c in calls)
        for (database, class_name), count in counts.items():
            self._observe(
                StoreCallFinished(
                    self.name, database, class_name, operation, count, seconds, outcome
                )
            )


def _outcome_of(error: StoreError) -> CallOutcome:
    if isinstance(error, StoreTimeout):
        return "timeout"
    return "refused" if isinstance(error, StoreRefused) else "unavailable"
