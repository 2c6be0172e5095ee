"""HTTP client of a running service; describes refusals in a sentence."""

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
_MAX_RETRY_DIGITS: Final = 9


@dataclass(eq=False)
class ServiceRefused(Exception):
    """The service refused or did not answer; if `transient`, a retry may succeed.

    Attributes:
        problem: The problem document, empty if there was none.
        may_be_done: Whether the request may have taken effect, wholly or in part.
        is_busy: Whether the service is up, and will accept the same request later.
        retry_s: The seconds of Retry-After; 0 if there is none.
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

    def request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Return the JSON object of the answer."""
        with self._translated_errors():
            document = _json_object(_check(self._http.request(method, path, **options)))
        if document is None:
            raise self._foreign("JSON")
        return document

    @contextmanager
    def stream(
        self, method: str, path: str, media_type: str, **options: Any
    ) -> Iterator[httpx.Response]:
        """Accept one media type, and yield an answer of it, to be read in chunks."""
        options["headers"] = {**options.get("headers", {}), "Accept": media_type}
        with self._translated_errors(), self._http.stream(method, path, **options) as answer:
            if not answer.is_success:
                # `_check` needs the body, which a stream does not read by itself.
                answer.read()
            if _media_type(_check(answer)) != media_type:
                raise self._foreign(media_type)
            yield answer

    def _foreign(self, expected: str) -> ServiceRefused:
        return ServiceRefused(f"The answer from {self._url} is no {expected}: is it a proxy's?")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        import httpx

        # Errors of an established connection: the request may have been received.
        broken = httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError
        timed_out = httpx.ReadTimeout, httpx.WriteTimeout
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL) as error:
            reason = f"The service at {self._url} does not answer: {type(error).__name__}."
            was_connected = isinstance(error, (*broken, *timed_out))
            raise ServiceRefused(reason, transient=True, may_be_done=was_connected) from error


def lines_of(answer: httpx.Response) -> Iterator[bytes]:
    """Yield each complete line; httpx would also split at separators that JSON can contain."""
    rest = b""
    for chunk in answer.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


def path_of(*segments: str) -> str:
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


def _check(answer: httpx.Response) -> httpx.Response:
    """Return a successful answer; raise any other, also a proxy's, as a refusal."""
    if answer.is_success:
        return answer
    problem = _json_object(answer) or {}
    is_full = answer.status_code == HTTPStatus.INSUFFICIENT_STORAGE
    # Until the request whose connection was lost has ended, its key is in use.
    is_under_way = problem.get("type") == _KEY_IN_USE
    is_busy = is_under_way or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
    transient = is_busy or (answer.is_server_error and not is_full)
    raise ServiceRefused(
        reason_of(problem) or f"The service answered {answer.status_code}.",
        transient=transient,
        problem=problem,
        may_be_done=is_under_way
        or (answer.is_server_error and _is_unknown(problem, is_full=is_full)),
        is_busy=is_busy,
        retry_s=_retry_s(answer),
    )


def _is_unknown(problem: dict[str, Any], *, is_full: bool) -> bool:
    """Whether a server error leaves open what became of its request."""
    if not problem:
        return not is_full  # a proxy's page: a proxy does not know the outcome
    # Some work after the point to resume at may also be done.
    return "next" in problem or problem.get("type") == _OUTCOME_UNKNOWN


def _retry_s(answer: httpx.Response) -> float:
    """Return the seconds of Retry-After; 0 if absent or a date, which Portolan never sends."""
    text = answer.headers.get("Retry-After", "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_RETRY_DIGITS
    return float(text) if is_number else 0.0


def _media_type(answer: httpx.Response) -> str:
    """Return the media type of an answer without parameters; empty if it has none."""
    type_: str = answer.headers.get("Content-Type", "")
    return type_.partition(";")[0].strip().lower()


def reason_of(problem: dict[str, Any]) -> str:
    """Format a problem as one line: its detail, and the mistakes that the detail does not name."""
    detail, mistakes = str(problem.get("detail", "")), problem.get("errors")
    locations = [
        f"{mistake.get('pointer')}: {mistake.get('detail')}."
        for mistake in (mistakes if isinstance(mistakes, list) else ())
        if isinstance(mistake, dict)
        and f"{mistake.get('pointer')} {mistake.get('detail')}" not in detail
    ]
    return " ".join([detail, *locations]).strip()


def _json_object(response: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object of a response; None if there is none, as in a proxy's page."""
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
