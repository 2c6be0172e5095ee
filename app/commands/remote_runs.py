"""Client of the runs of a service: submits, follows, cancels and resumes them, and saves results.

A request that is repeated after a failure is idempotent or has a key. Following a run survives a
restart of the service.
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

from app.commands.running import json_object
from app.http.negotiation import FILES
from app.settings.access import bearer
from spark_jobs.atomic_file import atomic_file
from spark_jobs.runner.results import FORMATS

__all__ = ["ENDED", "RemoteRuns", "ServiceRefused"]

ENDED: Final = frozenset({"done", "failed", "stopped", "cancelled"})

_JOBS: Final = "/jobs"
_POLL_S: Final = 0.5
_TIMEOUT_S: Final = 30.0
_SILENCE_S: Final = 60.0
_TYPES: Final = {format_: type_ for type_, format_ in FILES.items()}

RunDocument = dict[str, Any]


class ServiceRefused(Exception):
    """The service refused or did not answer; if that is `transient`, it may do so soon."""

    def __init__(self, reason: str, *, transient: bool = False) -> None:
        super().__init__(reason)
        self.transient = transient


class RemoteRuns:
    """The runs of a database at a service; every method raises `ServiceRefused`."""

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

    def submit(self, document: Mapping[str, Any], *, dry_run: bool) -> RunDocument:
        """Submit a job; a key keeps a retry from submitting it twice."""
        parameters = {"dry_run": str(dry_run).lower()}
        key = {"Idempotency-Key": uuid4().hex}
        send = partial(self._request, "POST", _JOBS, json=document, params=parameters, headers=key)
        try:
            return send()
        except ServiceRefused as refused:
            if not refused.transient:
                raise
        return send()

    def newest(self, limit: int) -> list[RunDocument]:
        items: list[RunDocument] = self._request("GET", _JOBS, params={"limit": limit})["items"]
        return items

    def find(self, run: str) -> RunDocument:
        return self._request("GET", _path(run))

    def cancel(self, run: str) -> RunDocument:
        return self._request("DELETE", _path(run))

    def resume(self, run: str) -> RunDocument:
        return self._request("POST", f"{_path(run)}/resume")

    def follow(self, run: str, look: Callable[[RunDocument], None]) -> RunDocument:
        """Return a run when it has ended; `look` gets each of its states until then."""
        answered_at = monotonic()
        while True:
            try:
                state = self.find(run)
            except ServiceRefused as refused:
                if not refused.transient or monotonic() - answered_at > _SILENCE_S:
                    raise
            else:
                answered_at = monotonic()
                look(state)
                if state["state"] in ENDED:
                    return state
            sleep(_POLL_S)

    def save(self, run: str, target: Path) -> None:
        """Write the result to a file atomically, in the format of its suffix."""
        accept = {"Accept": _TYPES[FORMATS[target.suffix.lower()]]}
        with (
            self._translated_errors(),
            self._http.stream("GET", f"{_path(run)}/results", headers=accept) as answer,
        ):
            if answer.is_error:
                # The body of a stream is not there until it is read, and `_check` needs it.
                answer.read()
            _check(answer)
            with atomic_file(target) as file:
                file.writelines(answer.iter_bytes())

    def _request(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        with self._translated_errors():
            document = json_object(_check(self._http.request(method, path, **sent)))
        if document is None:
            raise ServiceRefused(f"The answer from {self._url} is no JSON: is it a proxy's?")
        return document

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            reason = f"The service at {self._url} does not answer: {type(error).__name__}."
            raise ServiceRefused(reason, transient=True) from error


def _path(run: str) -> str:
    return f"{_JOBS}/{quote(run, safe='')}"


def _check(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is no refusal; what is not ours, a proxy's for example, is one."""
    if answer.is_success:
        return answer
    transient = answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
    problem = json_object(answer) or {}
    locations = [f"{each['pointer']}: {each['detail']}." for each in problem.get("errors", ())]
    detail = problem.get("detail", f"The service answered {answer.status_code}.")
    raise ServiceRefused(" ".join([detail, *locations]), transient=transient)
