"""``portolan tail``: follow the change feed of a database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from app.commands.consoles import errors, json_text, printable
from app.commands.reconnection import Reconnection, resume_hint
from app.commands.running import Database, DataUrl, Json, KeyFile, check_name, data_service
from app.commands.service_client import ServiceClient, ServiceRefused, lines_of

__all__ = ["tail"]


def _names(names: list[str] | None) -> list[str]:
    return [check_name(name) for name in names or ()]


def tail(
    database: Database,
    classes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLASS]...", callback=_names, help="Only changes of these classes."
        ),
    ] = None,
    *,
    after: Annotated[
        str | None,
        typer.Option(help="Start after a position, or from the `beginning`; else from now."),
    ] = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Print each change of a database as it happens, until Ctrl-C: docs/changes.md.

    If the connection is lost, the command continues after the last change when the service answers
    again; a change may then be printed twice. If it ends otherwise, a message says how to resume.
    """
    follower = _Follower(database, tuple(classes or ()), after)
    with data_service(url, key_file) as service:
        try:
            for change in follower.changes(service):
                typer.echo(json_text(change) if json else printable(_line(change)))
        except KeyboardInterrupt:
            if hint := follower.hint():
                errors.print(printable(hint.strip()))


@dataclass(slots=True)
class _Follower:
    """Follows a feed over connections that can break.

    Attributes:
        position: The position up to which it has read; None if it has not begun.
    """

    database: str
    classes: tuple[str, ...]
    position: str | None

    def changes(self, service: ServiceClient) -> Iterator[dict[str, Any]]:
        reconnection = Reconnection()
        while True:
            try:
                for change in self._connection(service, reconnection):
                    if not self.classes or change["class"] in self.classes:
                        yield change
            except ServiceRefused as refused:
                reconnection.wait(refused, self.hint())
            else:
                end = ServiceRefused("The feed has ended.", transient=True)
                reconnection.wait(end, self.hint())

    def hint(self) -> str:
        """Return how to read the remaining changes, if any was read."""
        return resume_hint(after=self.position)

    def _connection(self, service: ServiceClient, reconnection: Any) -> Iterator[dict[str, Any]]:
        import orjson

        from app.http.negotiation import EVENT_STREAM

        # The service selects one class, or all of them.
        class_name = self.classes[0] if len(self.classes) == 1 else None
        parameters = {
            name: value
            for name, value in (("class", class_name), ("after", self.position))
            if value is not None
        }
        path = f"/{self.database}/changes"
        with service.stream("GET", path, EVENT_STREAM, params=parameters) as answer:
            position = self.position
            for line in lines_of(answer):
                reconnection.answered()
                name, _, value = line.rstrip(b"\n").partition(b": ")
                if name == b"id":
                    position = value.decode()
                elif name == b"data":
                    yield orjson.loads(value)
                elif not name:  # the blank line that ends an event, which has been printed
                    self.position = position


def _line(change: dict[str, Any]) -> str:
    object_ = f"{change['class']}/{change['object']}"
    return f"{change['time']}  {change['kind']:7}  {object_}  {_values(change)}".rstrip()


def _values(change: dict[str, Any]) -> str:
    before, after = change["before"] or {}, change["after"]
    if after is None:
        return ""
    values = [_value(name, before, value) for name, value in after.items()]
    return ", ".join([*values, *(f"{name} removed" for name in before if name not in after)])


def _value(name: str, before: dict[str, Any], value: Any) -> str:
    former = f"{json_text(before[name])} → " if name in before and before[name] != value else ""
    return f"{name}: {former}{json_text(value)}"
