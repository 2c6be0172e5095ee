"""Waiting for a service that is silent or busy, and resuming work where it ended."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Final, Self, TypeVar

import typer

from app.commands.consoles import errors, printable, progress_display
from app.commands.service_client import ServiceClient, ServiceRefused, reason_of

__all__ = [
    "PAUSE_S",
    "SILENCE_S",
    "Reconnection",
    "Tally",
    "interruptible",
    "resume_hint",
    "send_pages",
]

T = TypeVar("T")

PAUSE_S: Final = 0.5
SILENCE_S: Final = 60.0
"""How long to wait for a service that is silent but was up."""

BUSY_S: Final = 600.0
"""How long to wait for a service that answers but accepts nothing.

Within that, a request that holds an idempotency key ends, and a tenant's rate limit recovers from
the cost of a request. People decide whether to wait for more, such as the end of another run.
"""

_TIMEOUT_S: Final = 60.0
"""Longer than the service works on one request for many objects."""

_SOON_S: Final = 10.0
"""A longer first Retry-After means that something must be started, such as a worker."""


@dataclass(slots=True)
class _Wait:
    """A wait of one kind.

    Attributes:
        max_s: How long it may last.
        since_s: When it started, by the monotonic clock; None: it has not.
    """

    max_s: float
    since_s: float | None = None

    def has_time(self, pause_s: float) -> bool:
        """Return whether another pause fits; the first call starts the wait."""
        now_s = monotonic()
        if self.since_s is None:
            self.since_s = now_s
        return now_s + pause_s - self.since_s <= self.max_s


class Reconnection:
    """Waits briefly for a service that was up before and does not answer now.

    It waits longer for a service that answers that it is busy, as its Retry-After says.

    Args:
        silence_s: Seconds to wait while it does not answer.
    """

    def __init__(self, silence_s: float = SILENCE_S) -> None:
        self._was_up = self._may_be_done = False
        self._silence = _Wait(silence_s)
        self._refusal = _Wait(BUSY_S)
        self._has_been_busy = False

    def answered(self) -> None:
        """Restart the waits: the service has done something."""
        self._was_up = self._may_be_done = True
        self._silence.since_s = self._refusal.since_s = None

    def wait(self, refused: ServiceRefused, hint: str = "") -> None:
        """Pause before the next attempt; print a message before the first pause of a silence.

        A rate-limited command prints it only once, as every request can be limited.

        Args:
            refused: Why the last one failed.
            hint: How to resume by hand; ends the error if something may be done already.

        Raises:
            ServiceRefused: The refusal is final, or lasts too long, or the service never answered.
        """
        self._may_be_done |= refused.may_be_done
        self._was_up |= self._may_be_done or _is_up(refused)
        if not self._was_up:
            raise refused
        wait, pause_s = self._silence, PAUSE_S
        if refused.is_busy:
            self._silence.since_s = None
            wait, pause_s = self._refusal, max(PAUSE_S, refused.retry_s)
        is_new = wait.since_s is None and not (refused.is_busy and self._has_been_busy)
        if not refused.transient or not wait.has_time(pause_s):
            raise ServiceRefused(f"{refused}{hint if self._may_be_done else ''}") from None
        self._has_been_busy |= refused.is_busy
        if is_new:
            message = f"{refused} Trying again, for {wait.max_s:.0f} s at most."
            errors.print(message)
        sleep(pause_s)

    def repeat(self, request: Callable[[], T], hint: str = "") -> T:
        """Repeat a request until it is answered, and return its result; see `wait`."""
        while True:
            try:
                result = request()
            except ServiceRefused as refused:
                self.wait(refused, hint)
            else:
                self.answered()
                return result


def _is_up(refused: ServiceRefused) -> bool:
    """Whether a refusal shows a service that expects a retry soon."""
    return refused.is_busy or 0 < refused.retry_s <= _SOON_S


def send_pages(
    send: Callable[[dict[str, str]], dict[str, Any]],
    count: Callable[[dict[str, Any]], str],
    after: str | None,
    hint: Callable[[str | None], str],
) -> None:
    """Send requests page by page: each answer says where the next page starts.

    If the service stops answering, continue when it answers again. Ctrl-C ends the command and
    prints how to resume.

    Args:
        send: Sends a request; the parameters say where it starts.
        count: Counts an answer, or a problem, which has the same members or lacks them; returns the
            progress as text.
        after: The id after which the first page starts; None: at the beginning.
        hint: Returns how to resume by hand after an id, or (None) from the beginning.

    Raises:
        ServiceRefused: A refusal that is final, or lasts too long; it says how to resume.
    """
    reconnection = Reconnection()
    with interruptible(lambda: hint(after)), progress_display() as show:
        while True:
            try:
                answer = send({} if after is None else {"after": after})
            except ServiceRefused as refused:
                show(count(refused.problem))
                position = refused.problem.get("next") or after
                if position != after:
                    after = position
                    reconnection.answered()
                reconnection.wait(refused, hint(after))
                continue
            reconnection.answered()
            show(count(answer))
            after = answer["next"]
            if after is None:
                return


@dataclass
class Tally:
    """Outcomes of objects, summed over consecutive requests.

    Attributes:
        counts: By their names in an answer; the first counts the objects examined.
        sample: The sample of the first answer that has one.
        label: Printed before each problem, and before the progress.
    """

    counts: dict[str, int]
    sample: Any = field(default_factory=list)
    label: str = ""

    def collect(
        self,
        service: ServiceClient,
        request: tuple[str, str],
        after: str | None,
        hint: Callable[[str | None], str],
        parameters: Sequence[tuple[str, Any]] = (),
        **options: Any,
    ) -> Self:
        """Send requests of a method to a path as `send_pages` does, and sum the answers."""

        def send(start: dict[str, str]) -> dict[str, Any]:
            query = [*parameters, *start.items()]
            return service.request(*request, params=query, timeout=_TIMEOUT_S, **options)

        send_pages(send, self.add, after, hint)
        return self

    def add(self, answer: dict[str, Any]) -> str:
        """Add the outcomes of some objects, and print the refusals."""
        for name in self.counts:
            self.counts[name] += answer.get(name, 0)
        self.sample = self.sample or answer.get("sample", [])
        for problem in answer.get("problems", ()):
            reason = printable(f"{self.label}{problem['id']}: {reason_of(problem)}")
            errors.print(reason)
        return f"{self.label}{next(iter(self.counts.values())):,} objects"


def resume_hint(*arguments: str, **options: str | int | None) -> str:
    """Return a sentence on how to resume, with a space before it; empty if there are no arguments.

    Args:
        arguments: The positional arguments of the command.
        options: Its options by name, with underscores; None is left out.
    """
    words = list(arguments)
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return f" To go on: {shlex.join(words)}" if words else ""


@contextmanager
def interruptible(hint: Callable[[], str]) -> Iterator[None]:
    """Let Ctrl-C end the command with 130 and a hint, which is evaluated only then."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(printable(f"Interrupted.{hint()}"))
        raise typer.Exit(130) from None
