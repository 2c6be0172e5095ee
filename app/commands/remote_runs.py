"""Client for a service's runs: submits, follows, cancels and resumes them, and saves results.

Requests that are retried are idempotent or have an idempotency key. Submitting and following a run,
and saving its result, survive a restart of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final
from uuid import uuid4

from app.commands.reconnection import Reconnection
from app.commands.service_client import ServiceClient, path_of
from app.http.negotiation import FILES
from spark_jobs.atomic_file import atomic_file
from spark_jobs.runner.results import FORMATS

__all__ = ["ENDED", "MAYBE_SUBMITTED", "RemoteRuns"]

ENDED: Final = frozenset({"done", "failed", "stopped", "cancelled"})
MAYBE_SUBMITTED: Final = "The job may have been submitted nevertheless; portolan job list shows it."

_POLL_S: Final = 0.5
_TYPES: Final = {format_: type_ for type_, format_ in FILES.items()}

RunDocument = dict[str, Any]


class RemoteRuns:
    """The runs of a database at a service; every method raises `ServiceRefused`."""

    def __init__(self, service: ServiceClient, database: str) -> None:
        self._service = service
        self._path = f"{path_of(database)}/jobs"

    def submit(self, document: Mapping[str, Any], *, dry_run: bool) -> RunDocument:
        """Submit a job; retry when the service answers if a connection or an answer was lost.

        An idempotency key prevents a retry from submitting it twice.

        Args:
            document: The job, as in a file.
            dry_run: Whether the run ends with its forecast.

        Raises:
            ServiceRefused: The job was refused, or the service was silent for too long.
        """
        key = {"Idempotency-Key": uuid4().hex}
        options = {"json": document, "params": {"dry_run": dry_run}, "headers": key}
        send = partial(self._service.request, "POST", self._path, **options)
        return Reconnection().repeat(send, f" {MAYBE_SUBMITTED}")

    def newest(self, limit: int) -> list[RunDocument]:
        answer = self._service.request("GET", self._path, params={"limit": limit})
        items: list[RunDocument] = answer["items"]
        return items

    def find(self, run: str) -> RunDocument:
        return self._service.request("GET", self._run_path(run))

    def cancel(self, run: str) -> RunDocument:
        return self._service.request("DELETE", self._run_path(run))

    def resume(self, run: str) -> RunDocument:
        return self._service.request("POST", f"{self._run_path(run)}/resume")

    def follow(self, run: str, look: Callable[[RunDocument], None]) -> RunDocument:
        """Wait for the end of a run and return it; `look` gets each of its states until then."""
        reconnection = Reconnection()
        reconnection.answered()  # the service did, when the run was submitted or found
        while True:
            state = reconnection.repeat(partial(self.find, run))
            look(state)
            if state["state"] in ENDED:
                return state
            sleep(_POLL_S)

    def save(self, run: str, target: Path) -> None:
        """Write the result to a file atomically, in the format of its suffix."""
        reconnection = Reconnection()
        reconnection.answered()  # the service did, when the run ended
        reconnection.repeat(partial(self._fetch, run, target))

    def _fetch(self, run: str, target: Path) -> None:
        media_type = _TYPES[FORMATS[target.suffix.lower()]]
        with (
            self._service.stream("GET", f"{self._run_path(run)}/results", media_type) as answer,
            atomic_file(target) as file,
        ):
            file.writelines(answer.iter_bytes())

    def _run_path(self, run: str) -> str:
        return f"{self._path}{path_of(run)}"
