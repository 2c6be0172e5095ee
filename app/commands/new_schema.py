"""A proposed schema: what it would change, and its application by the service."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any, Final

from app.commands.consoles import progress_display
from app.commands.schema_change import ProposedChange, build_line
from app.commands.service_client import ServiceClient, ServiceRefused

__all__ = ["ApplyOptions", "NewSchema", "schema_path"]

_PAUSE_S: Final = 1.0
_TIMEOUT_S: Final = 300.0
"""Checking and backfilling objects, and waiting for indexes, take at most a minute each; the check
runs twice."""


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The parameters of a request that applies a schema."""

    unchecked: bool = False
    backfill: bool = False
    drop: list[str] = field(default_factory=list)
    rename: list[str] = field(default_factory=list)
    move: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A proposed schema of a database."""

    service: ServiceClient
    database: str
    document: dict[str, Any]
    options: ApplyOptions

    def change(self) -> ProposedChange:
        from mediator.schema.differences import differences, renames_as_differences
        from mediator.schema.renames import parse_renames, renamed_document

        current = _current_schema(self.service, self.database)
        new = self.put(current["version"], dry_run=True)
        renames = parse_renames(self.options.rename)
        former = renamed_document(current["schema"], renames) if renames else current["schema"]
        return ProposedChange(
            self.database,
            current["version"],
            [*renames_as_differences(renames), *differences(former, new["schema"])],
            {
                node: {**placement, "before": before}
                for node, placement in new["placements"].items()
                if (before := current["placements"].get(node, {}).get("system"))
                != placement["system"]
            },
            new["moves"],
            new["violations"],
            new["notes"],
        )

    def put(self, version: int, *, dry_run: bool = False) -> dict[str, Any]:
        """Put it in force if `version` is in force now."""
        return self.service.request(
            "PUT",
            schema_path(self.database),
            json=self.document,
            params={**asdict(self.options), "dry_run": dry_run},
            headers={"If-Match": f'"{version}"'},
            timeout=_TIMEOUT_S,
        )

    def put_in_force(self, version: int) -> dict[str, Any]:
        """Put it in force, however long its indexes take; shows their progress."""
        with progress_display() as show:
            while True:
                pending = _in_background(lambda: self.put(version))
                while not wait([pending], _PAUSE_S).done:
                    show(self._building())
                try:
                    return pending.result()
                except ServiceRefused as refused:
                    if "builds" not in refused.problem:
                        raise

    def _building(self) -> str:
        path = f"{schema_path(self.database)}/index-builds"
        with suppress(ServiceRefused):  # the next attempt shows it
            return "; ".join(map(build_line, self.service.request("GET", path)["items"]))
        return ""


def _in_background(call: Callable[[], dict[str, Any]]) -> Future[dict[str, Any]]:
    """Call a function in a thread that an interrupted command does not wait for."""
    future = Future[dict[str, Any]]()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised where the result is awaited
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def _current_schema(service: ServiceClient, database: str) -> dict[str, Any]:
    try:
        return service.request("GET", schema_path(database))
    except ServiceRefused as refused:
        if refused.problem.get("type") != "/problems/not-found":
            raise
        return {"version": 0, "schema": {}, "placements": {}}


def schema_path(database: str, revision: int | None = None) -> str:
    return f"/schemas/{database}" + ("" if revision is None else f"/revisions/{revision}")
