"""Client of the runs of a service: submits, follows, cancels and resumes them, and saves results.

A request that is repeated after a failure is idempotent or has a key. Submitting and following a
run, and saving its result, survive a restart of the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final
from uuid import uuid4

from pydantic import SecretStr

from app.commands.reconnection import Reconnection
from app.commands.service_client import ServiceClient, path_of
from app.http.negotiation import FILES
from spark_jobs.atomic_file import atomic_file
from spark_jobs.runner.results import FORMATS

__all__ = ["ENDED", "MAY_BE_SUBMITTED", "RemoteRuns"]

ENDED: Final = frozenset({"done", "failed", "stopped", "cancelled"})
MAY_BE_SUBMITTED: Final = "The job may be submitted all the same; portolan job list shows it."

_JOBS: Final = "/jobs"
_POLL_S: Final = 0.5
_TYPES: Final = {format_: type_ for type_, format_ in FILES.items()}

RunDocument = dict[str, Any]


class RemoteRuns(ServiceClient):
    """The runs of a database at a service; every method raises `ServiceRefused`."""

    def __init__(self, url: str, database: str, key: SecretStr | None) -> None:
        super().__init__(url, key, path_of("v1", database))

    def submit(self, document: Mapping[str, Any], *, dry_run: bool) -> RunDocument:
        """Submit a job, again once the service answers if a connection or an answer was lost.

        A key keeps what is sent again from being submitted twice.

        Args:
            document: The job, as in a file.
            dry_run: Whether the run ends with its forecast.

        Raises:
            ServiceRefused: The job was refused, or the service was silent for too long.
        """
        parameters = {"dry_run": str(dry_run).lower()}
        key = {"Idempotency-Key": uuid4().hex}
        send = partial(self.request, "POST", _JOBS, json=document, params=parameters, headers=key)
        return Reconnection().repeat(send, f" {MAY_BE_SUBMITTED}")

    def newest(self, limit: int) -> list[RunDocument]:
        items: list[RunDocument] = self.request("GET", _JOBS, params={"limit": limit})["items"]
        return items

    def find(self, run: str) -> RunDocument:
        return self.request("GET", _path(run))

    def cancel(self, run: str) -> RunDocument:
        return self.request("DELETE", _path(run))

    def resume(self, run: str) -> RunDocument:
        return self.request("POST", f"{_path(run)}/resume")

    def follow(self, run: str, look: Callable[[RunDocument], None]) -> RunDocument:
        """Return a run when it has ended; `look` gets each of its states until then."""
        reconnection = Reconnection()
        reconnection.answered()  # when it was submitted or found
        while True:
            state = reconnection.repeat(partial(self.find, run))
            look(state)
            if state["state"] in ENDED:
                return state
            sleep(_POLL_S)

    def save(self, run: str, target: Path) -> None:
        """Write the result to a file atomically, in the format of its suffix."""
        reconnection = Reconnection()
        reconnection.answered()  # when the run had ended
        reconnection.repeat(partial(self._fetch, run, target))

    def _fetch(self, run: str, target: Path) -> None:
        media_type = _TYPES[FORMATS[target.suffix.lower()]]
        with (
            self.stream("GET", f"{_path(run)}/results", media_type) as answer,
            atomic_file(target) as file,
        ):
            file.writelines(answer.iter_bytes())


def _path(run: str) -> str:
    return f"{_JOBS}{path_of(run)}"
