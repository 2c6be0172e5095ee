"""Client of the runs of a service: submits, follows, cancels and resumes them, and saves results.

A request that is repeated after a failure is idempotent or has a key. Following a run survives a
restart of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from pydantic import SecretStr

from app.commands.remote import RemoteService, ServiceRefused, checked
from app.http.negotiation import FILES
from spark_jobs.atomic_file import atomic_file
from spark_jobs.runner.results import FORMATS

__all__ = ["ENDED", "RemoteRuns"]

ENDED: Final = frozenset({"done", "failed", "stopped", "cancelled"})

_JOBS: Final = "/jobs"
_POLL_S: Final = 0.5
_SILENCE_S: Final = 60.0
_TYPES: Final = {format_: type_ for type_, format_ in FILES.items()}

RunDocument = dict[str, Any]


class RemoteRuns(RemoteService):
    """The runs of a database at a service; every method raises `ServiceRefused`."""

    def __init__(self, url: str, database: str, key: SecretStr | None) -> None:
        super().__init__(url, key, f"/v1/{quote(database, safe='')}")

    def submit(self, document: Mapping[str, Any], *, dry_run: bool) -> RunDocument:
        """Submit a job; a key keeps a retry from submitting it twice."""
        parameters = {"dry_run": str(dry_run).lower()}
        key = {"Idempotency-Key": uuid4().hex}
        send = partial(self.document, "POST", _JOBS, json=document, params=parameters, headers=key)
        try:
            return send()
        except ServiceRefused as refused:
            if not refused.transient:
                raise
        return send()

    def newest(self, limit: int) -> list[RunDocument]:
        items: list[RunDocument] = self.document("GET", _JOBS, params={"limit": limit})["items"]
        return items

    def find(self, run: str) -> RunDocument:
        return self.document("GET", _path(run))

    def cancel(self, run: str) -> RunDocument:
        return self.document("DELETE", _path(run))

    def resume(self, run: str) -> RunDocument:
        return self.document("POST", f"{_path(run)}/resume")

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
            self.translated_errors(),
            self.http.stream("GET", f"{_path(run)}/results", headers=accept) as answer,
        ):
            if answer.is_error:
                # The body of a stream is not there until it is read, and `checked` needs it.
                answer.read()
            checked(answer)
            with atomic_file(target) as file:
                file.writelines(answer.iter_bytes())


def _path(run: str) -> str:
    return f"{_JOBS}/{quote(run, safe='')}"
