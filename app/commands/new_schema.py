"""A schema that may be put in force: what the service says of it, and does with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any, Final

from app.commands.consoles import shown_progress
from app.commands.schema_change import ProposedChange, build_line
from app.commands.service_client import ServiceClient, ServiceRefused

__all__ = ["ApplyOptions", "NewSchema", "schema_path"]

_PAUSE_S: Final = 1.0
_TIMEOUT_S: Final = 300.0
"""Checking and backfilling objects, and waiting for indexes, take a minute each, at most; the check
comes twice."""


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of a request that puts a schema in force, by their names there."""

    unchecked: bool = False
    backfill: bool = False
    drop: list[str] = field(default_factory=list)
    rename: list[str] = field(default_factory=list)
    move: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema that may be put in force."""

    service: ServiceClient
    database: str
    document: dict[str, Any]
    options: ApplyOptions

    def change(self) -> ProposedChange:
        from mediator.schema.differences import differences, renames_as_differences
        from mediator.schema.renames import parse_renames, renamed_document

        present = _present(self.service, self.database)
        new = self.put(present["version"], dry_run=True)
        renames = parse_renames(self.options.rename)
        former = renamed_document(present["schema"], renames) if renames else present["schema"]
        return ProposedChange(
            self.database,
            present["version"],
            [*renames_as_differences(renames), *differences(former, new["schema"])],
            {
                node: {**placed, "before": before}
                for node, placed in new["placements"].items()
                if (before := present["placements"].get(node, {}).get("system")) != placed["system"]
            },
            new["moves"],
            new["violations"],
            new["notes"],
        )

    def put(self, version: int, *, dry_run: bool = False) -> dict[str, Any]:
        """Put it in force, if the version in force is the one given."""
        return self.service.request(
            "PUT",
            schema_path(self.database),
            json=self.document,
            params={**asdict(self.options), "dry_run": dry_run},
            headers={"If-Match": f'"{version}"'},
            timeout=_TIMEOUT_S,
        )

    def put_in_force(self, version: int) -> dict[str, Any]:
        """Put it in force, however long its indexes take; shows how far they are."""
        with shown_progress() as show:
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
        with suppress(ServiceRefused):  # then it is seen the next time
            return "; ".join(map(build_line, self.service.request("GET", path)["items"]))
        return ""


def _in_background(call: Callable[[], dict[str, Any]]) -> Future[dict[str, Any]]:
    """Call something in a thread that an interrupted command does not wait for."""
    future = Future[dict[str, Any]]()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - it is raised where the result is waited for
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def _present(service: ServiceClient, database: str) -> dict[str, Any]:
    try:
        return service.request("GET", schema_path(database))
    except ServiceRefused as refused:
        if refused.problem.get("type") != "/problems/not-found":
            raise
        return {"version": 0, "schema": {}, "placements": {}}


def schema_path(database: str, revision: int | None = None) -> str:
    return f"/schemas/{database}" + ("" if revision is None else f"/revisions/{revision}")
