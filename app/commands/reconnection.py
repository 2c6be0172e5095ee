"""Waiting for a service that is silent, or takes no more just now; and going on where one ended."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Final, Self, TypeVar

import typer

from app.commands.consoles import errors, printable, shown_progress
from app.commands.service_client import ServiceClient, ServiceRefused, reason_of

__all__ = [
    "PAUSE_S",
    "SILENCE_S",
    "Reconnection",
    "Tally",
    "interruptible",
    "page_by_page",
    "way_on",
]

T = TypeVar("T")

PAUSE_S: Final = 0.5
SILENCE_S: Final = 60.0
"""How long a service that was there is waited for."""

BUSY_S: Final = 600.0
"""How long a service is waited for that answers, and takes nothing.

A request that holds a key ends within that, and the rates of tenants have made good what a request
has cost. Whether to wait for more, such as the end of another run, is for people to decide.
"""

_TIMEOUT_S: Final = 60.0
"""More than the seconds that the service works for one request of many objects."""

_SOON_S: Final = 10.0
"""A service that says to wait longer at first lacks what somebody must start, as a worker."""


@dataclass(slots=True)
class _Wait:
    """A wait of one kind.

    Attributes:
        most_s: How long it may last.
        since_s: When it began, by the monotonic clock; None: it has not.
    """

    most_s: float
    since_s: float | None = None

    def has_time(self, pause_s: float) -> bool:
        """Whether it may last for another pause; it begins now unless it has begun."""
        now_s = monotonic()
        if self.since_s is None:
            self.since_s = now_s
        return now_s + pause_s - self.since_s <= self.most_s


class Reconnection:
    """Waits for a service that was there before and does not answer now, but not for long.

    One that answers that it takes no more just now is waited for longer, as it says.

    Args:
        silence_s: How long it is waited for while it does not answer (seconds).
    """

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self._was_there = self._may_be_done = False
        self._silence = _Wait(silence_s)
        self._refusal = _Wait(BUSY_S)
        self._has_been_busy = False

    def answered(self) -> None:
        """The service has done something: waits begin anew."""
        self._was_there = self._may_be_done = True
        self._silence.since_s = self._refusal.since_s = None

    def wait(self, refused: ServiceRefused, goes_on: str = "") -> None:
        """Pause before the next attempt, and say so before the first one of a silence.

        A command whose requests are limited says so once, as that may be after each of them.

        Args:
            refused: Why the last one failed.
            goes_on: How to go on by hand, if this is the end and something may have been done.

        Raises:
            ServiceRefused: The refusal is final, or lasts too long, or the service never answered.
        """
        self._may_be_done |= refused.may_be_done
        self._was_there |= self._may_be_done or _is_there(refused)
        if not self._was_there:
            raise refused
        wait, pause_s = self._silence, PAUSE_S
        if refused.is_busy:
            self._silence.since_s = None
            wait, pause_s = self._refusal, max(PAUSE_S, refused.retry_s)
        is_new = wait.since_s is None and not (refused.is_busy and self._has_been_busy)
        if not refused.transient or not wait.has_time(pause_s):
            raise ServiceRefused(f"{refused}{goes_on if self._may_be_done else ''}") from None
        self._has_been_busy |= refused.is_busy
        if is_new:
            again = f"{refused} Trying again, for {wait.most_s:.0f} s at most."
            errors.print(again)
        sleep(pause_s)

    def repeat(self, request: Callable[[], T], goes_on: str = "") -> T:
        """Return what a request does, which is repeated until it is answered; see `wait`."""
        while True:
            try:
                done = request()
            except ServiceRefused as refused:
                self.wait(refused, goes_on)
            else:
                self.answered()
                return done


def _is_there(refused: ServiceRefused) -> bool:
    """Whether a refusal shows a service that expects the request again before long."""
    return refused.is_busy or 0 < refused.retry_s <= _SOON_S


def page_by_page(
    send: Callable[[dict[str, str]], dict[str, Any]],
    count: Callable[[dict[str, Any]], str],
    after: str | None,
    goes_on: Callable[[str | None], str],
) -> None:
    """Send requests, each of which says where the next one goes on, until nothing is beyond.

    If the service stops answering, go on once it answers again. Ctrl-C ends the command, and says
    how to go on.

    Args:
        send: Sends one, by the parameters of where it begins.
        count: Takes each answer, and each problem, which has the same members or lacks them; says
            how far the work is, to be shown.
        after: The id after which the first one begins; None: at the beginning.
        goes_on: Says how to go on by hand after an id, or (None) at the beginning.

    Raises:
        ServiceRefused: A refusal that is final, or lasts too long; it says how to go on.
    """
    reconnection = Reconnection()
    with interruptible(lambda: goes_on(after)), shown_progress() as show:
        while True:
            try:
                answer = send({} if after is None else {"after": after})
            except ServiceRefused as refused:
                show(count(refused.problem))
                reached = refused.problem.get("next") or after
                if reached != after:
                    after = reached
                    reconnection.answered()
                reconnection.wait(refused, goes_on(after))
                continue
            reconnection.answered()
            show(count(answer))
            after = answer["next"]
            if after is None:
                return


@dataclass
class Tally:
    """What became of objects, added up over requests that go on where the one before ended.

    Attributes:
        counts: By their names in an answer; the first counts the objects that were looked at.
        sample: That of the first answer which has one.
        label: What is printed before each problem, and before how far the work is.
    """

    counts: dict[str, int]
    sample: Any = field(default_factory=list)
    label: str = ""

    def collect(
        self,
        service: ServiceClient,
        request: tuple[str, str],
        after: str | None,
        goes_on: Callable[[str | None], str],
        parameters: Sequence[tuple[str, Any]] = (),
        **sent: Any,
    ) -> Self:
        """Send requests of a method to a path as `page_by_page` does, and add up the answers."""

        def send(begin: dict[str, str]) -> dict[str, Any]:
            given = [*parameters, *begin.items()]
            return service.request(*request, params=given, timeout=_TIMEOUT_S, **sent)

        page_by_page(send, self.add, after, goes_on)
        return self

    def add(self, answer: dict[str, Any]) -> str:
        """Add what became of some objects, and report those that were refused."""
        for name in self.counts:
            self.counts[name] += answer.get(name, 0)
        self.sample = self.sample or answer.get("sample", [])
        for problem in answer.get("problems", ()):
            reason = printable(f"{self.label}{problem['id']}: {reason_of(problem)}")
            errors.print(reason)
        return f"{self.label}{next(iter(self.counts.values())):,} objects"


def way_on(*arguments: str, **options: str | int | None) -> str:
    """Return the sentence that says how to go on, with a space before; nothing if no way is given.

    Args:
        arguments: What the command is given besides options.
        options: The options, by their names with underscores; one that is None is left out.
    """
    words = list(arguments)
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return f" To go on: {shlex.join(words)}" if words else ""


@contextmanager
def interruptible(goes_on: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the command with 130 and the way on, which is found only then."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(printable(f"Interrupted.{goes_on()}"))
        raise typer.Exit(130) from None
