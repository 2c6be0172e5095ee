"""``portolan verify-references``: references to objects that do not exist, and their repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.commands.consoles import errors, json_text, printable
from app.commands.reconnection import page_by_page, way_on
from app.commands.running import AdminUrl, Database, Json, KeyFile, admin_service
from app.commands.service_client import ServiceClient, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


__all__ = ["verify_references"]

_TIMEOUT_S: Final = 60.0
"""More than the seconds that the service works for one request."""

_COUNTED: Final = ("objects", "dangling", "repaired", "failed")


class By(StrEnum):
    """How a dangling reference is repaired."""

    NULLIFY = "nullify"
    DELETE = "delete"


def verify_references(
    database: Database,
    field: Annotated[
        str | None, typer.Argument(metavar="CLASS.FIELD", help="Of one field alone.")
    ] = None,
    *,
    repair: Annotated[
        By | None, typer.Option(help="Remove the references, or delete the objects.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(help="Only ids that come after this one, of CLASS.FIELD.")
    ] = None,
    url: AdminUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Find references to objects that do not exist: docs/schema.md.

    Nothing is written without --repair. Ends with 1 if some dangle and were not repaired.
    """
    if after is not None and field is None:
        raise typer.BadParameter("--after goes on in one field: name CLASS.FIELD.")
    with admin_service(url, key_file) as service:
        found = [
            _Check(name, service, database, repair).run(after)
            for name in ([field] if field is not None else _references_of(service, database))
        ]
    if json:
        typer.echo(json_text([each.to_json() for each in found]))
    else:
        for each in found:
            typer.echo(each.sentence())
    raise typer.Exit(1 if any(each.is_left for each in found) else 0)


def _references_of(service: ServiceClient, database: str) -> Iterator[str]:
    """Yield the fields of a database that refer to objects."""
    schema = service.request("GET", f"/schemas/{database}")["schema"]
    for class_name, class_ in schema["classes"].items():
        for name, members in class_["fields"].items():
            if "to" in members:
                yield f"{class_name}.{name}"


@dataclass
class _Check:
    """The check of one field, by requests that go on where the one before ended."""

    _field: str
    _service: ServiceClient
    _database: str
    _repair: By | None
    _counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    _sample: list[dict[str, str]] = field(default_factory=list)

    @property
    def is_left(self) -> bool:
        return self._counts["dangling"] > self._counts["repaired"]

    def run(self, after: str | None) -> _Check:
        class_name, _, name = self._field.partition(".")
        path = path_of("integrity", self._database, class_name, name)
        repair = {} if self._repair is None else {"repair": self._repair.value}

        def send(begin: dict[str, str]) -> dict[str, Any]:
            sent = {"params": {**repair, **begin}, "timeout": _TIMEOUT_S}
            return self._service.request("POST", path, **sent)

        page_by_page(send, self._count, after, self._goes_on)
        return self

    def _goes_on(self, after: str | None) -> str:
        """Say how the rest of this field is checked, unless that is all of it."""
        return "" if after is None else way_on(self._field, after=after)

    def _count(self, answer: Mapping[str, Any]) -> str:
        """Add what was found, and report what could not be repaired."""
        for name in _COUNTED:
            self._counts[name] += answer.get(name, 0)
        self._sample = self._sample or answer.get("sample", [])
        for problem in answer.get("problems", ()):
            text = printable(f"{self._field} of {problem['id']}: {problem['detail']}")
            errors.print(text, markup=False, soft_wrap=True)
        return f"{self._field}: {self._counts['objects']:,} objects"

    def to_json(self) -> dict[str, Any]:
        return {"field": self._field, **self._counts, "sample": self._sample}

    def sentence(self) -> str:
        counts = self._counts
        named = ", ".join(f"{each['id']} (to {each['to']})" for each in self._sample)
        found = f"{self._field}: objects {counts['objects']:,}; dangling {counts['dangling']:,}"
        repaired = "" if self._repair is None else f"; repaired {counts['repaired']:,}"
        return printable(f"{found}{repaired}{f': {named}' if named else ''}")
