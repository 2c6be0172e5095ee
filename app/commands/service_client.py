"""Client of a running service, whose refusals are sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from app.commands.consoles import printable

if TYPE_CHECKING:
    import httpx
    from pydantic import SecretStr

__all__ = [
    "ServiceClient",
    "ServiceRefused",
    "lines_of",
    "path_of",
    "reason_of",
]

_TIMEOUT_S: Final = 30.0
_KEY_IN_USE: Final = "/problems/idempotency-key-in-use"
_OUTCOME_UNKNOWN: Final = "/problems/outcome-unknown"
_MOST_RETRY_DIGITS: Final = 9


@dataclass(eq=False)
class ServiceRefused(Exception):
    """The service refused or did not answer; if that is `transient`, it may do so soon.

    Attributes:
        problem: The problem document, empty if there was none.
        may_be_done: Whether what was requested may be done, or a part of it.
        is_busy: Whether the service is there, and takes the same request later.
        retry_s: After how many seconds it says that it may; 0 if it does not say.
    """

    reason: str
    _: KW_ONLY
    transient: bool = False
    problem: dict[str, Any] = field(default_factory=dict)
    may_be_done: bool = False
    is_busy: bool = False
    retry_s: float = 0.0

    def __str__(self) -> str:
        return printable(self.reason)


class ServiceClient:
    """The paths of an API below a base; every method raises `ServiceRefused`."""

    def __init__(self, url: str, key: SecretStr | None, base: str = "") -> None:
        import httpx

        from app.settings.access import bearer

        self._http = httpx.Client(
            base_url=f"{url.rstrip('/')}{base}", timeout=_TIMEOUT_S, headers=bearer(key)
        )
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def request(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Return the JSON object that is answered."""
        with self._translated_errors():
            document = _json_object(_check(self._http.request(method, path, **sent)))
        if document is None:
            raise self._foreign("JSON")
        return document

    @contextmanager
    def stream(
        self, method: str, path: str, media_type: str, **sent: Any
    ) -> Iterator[httpx.Response]:
        """Accept one media type, and yield the answer that has it, to be read piece by piece."""
        sent["headers"] = {**sent.get("headers", {}), "Accept": media_type}
        with self._translated_errors(), self._http.stream(method, path, **sent) as answer:
            if not answer.is_success:
                # The body of a stream is not there until it is read, and `_check` needs it.
                answer.read()
            if _media_type(_check(answer)) != media_type:
                raise self._foreign(media_type)
            yield answer

    def _foreign(self, expected: str) -> ServiceRefused:
        return ServiceRefused(f"The answer from {self._url} is no {expected}: is it a proxy's?")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        import httpx

        # What happens to a connection that was there: the request may have been received.
        broken = httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError
        late = httpx.ReadTimeout, httpx.WriteTimeout
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL) as error:
            reason = f"The service at {self._url} does not answer: {type(error).__name__}."
            lost = isinstance(error, (*broken, *late))
            raise ServiceRefused(reason, transient=True, may_be_done=lost) from error


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
    problem = _json_object(answer) or {}
    full = answer.status_code == HTTPStatus.INSUFFICIENT_STORAGE
    # Until the request whose connection was lost has ended, its key is in use.
    is_under_way = problem.get("type") == _KEY_IN_USE
    is_busy = is_under_way or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
    transient = is_busy or (answer.is_server_error and not full)
    raise ServiceRefused(
        reason_of(problem) or f"The service answered {answer.status_code}.",
        transient=transient,
        problem=problem,
        may_be_done=is_under_way or (answer.is_server_error and _is_unknown(problem, full=full)),
        is_busy=is_busy,
        retry_s=_retry_s(answer),
    )


def _is_unknown(problem: dict[str, Any], *, full: bool) -> bool:
    """Whether a server error leaves open what became of its request."""
    if not problem:
        return not full  # a proxy's page, and a proxy does not know it
    # Behind the place to go on at, a part may be done as well.
    return "next" in problem or problem.get("type") == _OUTCOME_UNKNOWN


def _retry_s(answer: httpx.Response) -> float:
    """Return the seconds of Retry-After; 0 if there is none, or a date, which ours never is."""
    text = answer.headers.get("Retry-After", "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_RETRY_DIGITS
    return float(text) if is_number else 0.0


def _media_type(answer: httpx.Response) -> str:
    """Return the media type of an answer without its parameters; nothing if it has none."""
    type_: str = answer.headers.get("Content-Type", "")
    return type_.partition(";")[0].strip().lower()


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
