"""Runs at a service, by its data API: submitted, followed to their end, and their results fetched.

What is asked for again after a failure changes nothing, or has a key by which it is known. Who
follows a run outlives a service that is restarted meanwhile; the run goes on without him in any
case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import SecretStr

from app.http.negotiation import FILES
from app.settings.access import bearer
from spark_jobs.runner.target import FORMS, fill

__all__ = ["ENDED", "RemoteRuns", "ServiceRefused"]

ENDED: Final = frozenset({"done", "failed", "stopped", "cancelled"})

_JOBS: Final = "/jobs"
_ASK_S: Final = 0.5
_TIMEOUT_S: Final = 30.0
_SILENCE_S: Final = 60.0
_TYPES: Final = {form: type_ for type_, form in FILES.items()}

Run = dict[str, Any]


class ServiceRefused(Exception):
    """The service said no, or nothing at all; the message says why.

    Attributes:
        passing: Whether it may say something else soon.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class RemoteRuns:
    """The runs of a database at a service; a context manager.

    Args:
        url: Address of the data API.
        database: Whose runs.
        key: Sent with every request; None: the service asks for none.
    """

    def __init__(self, url: str, database: str, key: SecretStr | None) -> None:
        base = f"{url.rstrip('/')}/v1/{quote(database, safe='')}"
        self._http = httpx.Client(base_url=base, timeout=_TIMEOUT_S, headers=bearer(key))
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

    def submit(self, document: Mapping[str, Any], *, dry_run: bool) -> Run:
        """Submit a job, once though an answer is lost.

        Raises:
            ServiceRefused: It said no, or nothing; as all others do.
        """
        asked = {"dry_run": str(dry_run).lower()}
        key = {"Idempotency-Key": uuid4().hex}
        send = partial(self._ask, "POST", _JOBS, json=document, params=asked, headers=key)
        try:
            return dict(send())
        except ServiceRefused as refused:
            if not refused.passing:
                raise
        return dict(send())

    def newest(self, limit: int) -> list[Run]:
        """List runs, newest first."""
        items: list[Run] = self._ask("GET", _JOBS, params={"limit": limit})["items"]
        return items

    def find(self, run: str) -> Run:
        """Return a run as it is now."""
        return dict(self._ask("GET", _path(run)))

    def cancel(self, run: str) -> Run:
        """Ask for its end."""
        return dict(self._ask("DELETE", _path(run)))

    def resume(self, run: str) -> Run:
        """Queue it again."""
        return dict(self._ask("POST", f"{_path(run)}/resume"))

    def follow(self, run: str, look: Callable[[Run], None]) -> Run:
        """Return a run when it has ended; `look` is shown what it was meanwhile."""
        heard = monotonic()
        while True:
            try:
                found = self.find(run)
            except ServiceRefused as refused:
                if not refused.passing or monotonic() - heard > _SILENCE_S:
                    raise
            else:
                heard = monotonic()
                look(found)
                if found["state"] in ENDED:
                    return found
            sleep(_ASK_S)

    def save(self, run: str, target: Path) -> None:
        """Write its result to a file, in the form that the suffix says; whole, or not at all.

        Raises:
            OSError: It cannot be written.
        """
        accept = {"Accept": _TYPES[FORMS[target.suffix.lower()]]}
        with (
            self._telling(),
            self._http.stream("GET", f"{_path(run)}/results", headers=accept) as answer,
        ):
            if answer.is_error:
                answer.read()
            _check(answer)
            fill(target, answer.iter_bytes())

    def _ask(self, method: str, path: str, **sent: Any) -> Any:
        with self._telling():
            return _check(self._http.request(method, path, **sent)).json()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            reason = f"The service at {self._url} does not answer: {type(error).__name__}."
            raise ServiceRefused(reason, passing=True) from error


def _path(run: str) -> str:
    return f"{_JOBS}/{quote(run, safe='')}"


def _check(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is no refusal; what is not ours, a proxy's for example, is one."""
    if answer.is_success:
        return answer
    passing = answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
    try:
        told = dict(answer.json())
    except ValueError:
        told = {}
    locations = [f"{each['pointer']}: {each['detail']}." for each in told.get("errors", ())]
    detail = told.get("detail", f"The service answered {answer.status_code}.")
    raise ServiceRefused(" ".join([detail, *locations]), passing=passing)
