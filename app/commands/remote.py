"""A running service, as commands call it: requests with a key, and refusals in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import httpx
from pydantic import SecretStr

from app.commands.running import json_object
from app.settings.access import bearer

__all__ = ["RemoteService", "ServiceRefused", "checked"]

_TIMEOUT_S: Final = 30.0


class ServiceRefused(Exception):
    """The service refused or did not answer.

    Attributes:
        status: Of the answer; None: there was none.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status

    @property
    def transient(self) -> bool:
        """Whether it may be accepted soon."""
        return self.status is None or self.status >= httpx.codes.INTERNAL_SERVER_ERROR


class RemoteService:
    """One port of a running service; every request raises `ServiceRefused`.

    Args:
        url: The address of the port.
        key: Sent with every request.
        path: What the paths of requests are below.
    """

    def __init__(self, url: str, key: SecretStr | None, path: str = "") -> None:
        base = f"{url.rstrip('/')}{path}"
        self.http = httpx.Client(base_url=base, timeout=_TIMEOUT_S, headers=bearer(key))
        self._url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()

    def document(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Send a request; return the JSON object that is answered."""
        return self.answer(method, path, **sent)[0]

    def answer(self, method: str, path: str, **sent: Any) -> tuple[dict[str, Any], httpx.Headers]:
        """Send a request; return the JSON object that is answered, and the header fields."""
        with self.translated_errors():
            answer = checked(self.http.request(method, path, **sent))
        document = json_object(answer)
        if document is None:
            reason = f"The answer from {self._url} is no JSON: is it a proxy's?"
            raise ServiceRefused(reason, answer.status_code)
        return document, answer.headers

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            reason = f"The service at {self._url} does not answer: {type(error).__name__}."
            raise ServiceRefused(reason) from error


def checked(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is no refusal; what is not ours, a proxy's for example, is one."""
    if answer.is_success:
        return answer
    problem = json_object(answer) or {}
    locations = [f"{each['pointer']}: {each['detail']}." for each in problem.get("errors", ())]
    detail = problem.get("detail", f"The service answered {answer.status_code}.")
    raise ServiceRefused(" ".join([detail, *locations]), answer.status_code)
