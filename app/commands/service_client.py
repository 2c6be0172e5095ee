"""Client of a running service: refusals are sentences, and a restart is waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from app.commands.consoles import errors, printable, shown_progress
from app.settings.access import bearer

__all__ = [
    "PAUSE_S",
    "SILENCE_S",
    "Reconnection",
    "ServiceClient",
    "ServiceRefused",
    "lines_of",
    "page_by_page",
    "path_of",
    "reason_of",
]

_TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.5
SILENCE_S: Final = 60.0
"""How long a service that was there is waited for."""

_LOST: Final = (
    httpx.ReadError,
    httpx.WriteError,
    httpx.RemoteProtocolError,
    httpx.ReadTimeout,
    httpx.WriteTimeout,
)
"""What happens to a connection that was there, so that the request may have been received."""


class ServiceRefused(Exception):
    """The service refused or did not answer; if that is `transient`, it may do so soon.

    Attributes:
        problem: The problem document, empty if there was none.
        is_lost: Whether the answer was lost on its way: what was requested may be done.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool = False,
        problem: dict[str, Any] | None = None,
        is_lost: bool = False,
    ) -> None:
        super().__init__(printable(reason))
        self.transient = transient
        self.problem = problem or {}
        self.is_lost = is_lost


class ServiceClient:
    """The paths of an API below a base; every method raises `ServiceRefused`."""

    def __init__(self, url: str, key: SecretStr | None, base: str = "") -> None:
        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}{base}", timeout=_TIMEOUT_S, headers=bearer(key)
        )
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def request(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Return the JSON object that is answered."""
        with self._translated_errors():
            document = _json_object(_check(self._http.request(method, path, **sent)))
        if document is None:
            raise ServiceRefused(f"The answer from {self._url} is no JSON: is it a proxy's?")
        return document

    @contextmanager
    def stream(self, method: str, path: str, **sent: Any) -> Iterator[httpx.Response]:
        with self._translated_errors(), self._http.stream(method, path, **sent) as answer:
            if answer.is_error:
                # The body of a stream is not there until it is read, and `_check` needs it.
                answer.read()
            yield _check(answer)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL) as error:
            reason = f"The service at {self._url} does not answer: {type(error).__name__}."
            lost = isinstance(error, _LOST)
            raise ServiceRefused(reason, transient=True, is_lost=lost) from error


class Reconnection:
    """Waits for a service that was there before and does not answer now, but not for long."""

    def __init__(self) -> None:
        self._was_there = False
        self._silent_since: float | None = None

    def answered(self) -> None:
        self._was_there, self._silent_since = True, None

    def wait(self, refused: ServiceRefused, goes_on: str = "") -> None:
        """Pause before the next attempt, and say so before the first one of a silence.

        Args:
            refused: Why the last one failed.
            goes_on: How to go on by hand, if this is the end and something may have been done.

        Raises:
            ServiceRefused: The refusal is final, or lasts too long, or the service never answered.
        """
        if refused.is_lost or "next" in refused.problem:  # it took the request, or did a part
            self._was_there = True
        if not self._was_there:
            raise refused
        now = monotonic()
        since = now if self._silent_since is None else self._silent_since
        if not refused.transient or now - since > SILENCE_S:
            raise ServiceRefused(f"{refused}{goes_on}") from None
        if self._silent_since is None:
            self._silent_since = now
            again = f"{refused} Trying again, for {SILENCE_S:.0f} s at most."
            errors.print(again, markup=False, soft_wrap=True)
        sleep(PAUSE_S)


def page_by_page(
    send: Callable[[dict[str, str]], dict[str, Any]],
    count: Callable[[dict[str, Any]], str],
    after: str | None,
    what: str = "",
) -> None:
    """Send requests, each of which says where the next one goes on, until nothing is beyond.

    If the service stops answering, go on once it answers again.

    Args:
        send: Sends one, by the parameters of where it begins.
        count: Takes each answer, and each problem, which has the same members or lacks them; says
            how far the work is, to be shown.
        after: The id after which the first one begins; None: at the beginning.
        what: What comes before `--after` in a command that goes on.

    Raises:
        ServiceRefused: A refusal that is final, or lasts too long; it says how to go on.
    """
    reconnection = Reconnection()
    with shown_progress() as show:
        while True:
            try:
                answer = send({} if after is None else {"after": after})
            except ServiceRefused as refused:
                show(count(refused.problem))
                after = refused.problem.get("next") or after
                goes_on = "" if after is None else f" To go on: {what}--after {after}"
                reconnection.wait(refused, goes_on)
                continue
            reconnection.answered()
            show(count(answer))
            after = answer["next"]
            if after is None:
                return


def lines_of(answer: httpx.Response) -> Iterator[bytes]:
    """Yield each line that has its end; httpx would split at separators that JSON may hold."""
    rest = b""
    for piece in answer.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"


def path_of(*segments: str) -> str:
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _check(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is no refusal; what is not ours, a proxy's for example, is one."""
    if answer.is_success:
        return answer
    full = answer.status_code == httpx.codes.INSUFFICIENT_STORAGE
    transient = answer.is_server_error and not full
    problem = _json_object(answer) or {}
    reason = reason_of(problem) or f"The service answered {answer.status_code}."
    # A page without a problem is a proxy's, which does not know what became of the request.
    lost = transient and not problem
    raise ServiceRefused(reason, transient=transient, problem=problem, is_lost=lost)


def reason_of(problem: dict[str, Any]) -> str:
    """Return a problem in one line: its detail, and each mistake that it does not name."""
    detail, mistakes = str(problem.get("detail", "")), problem.get("errors")
    locations = [
        f"{each.get('pointer')}: {each.get('detail')}."
        for each in (mistakes if isinstance(mistakes, list) else ())
        if isinstance(each, dict) and f"{each.get('pointer')} {each.get('detail')}" not in detail
    ]
    return " ".join([detail, *locations]).strip()


def _json_object(response: httpx.Response) -> dict[str, Any] | None:
    """Return the object that a response holds; None if it holds none, as a proxy's page."""
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
