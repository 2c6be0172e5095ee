"""``portolan update`` and ``portolan delete``: writes to all objects that meet conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from uuid import uuid4

import typer

from app.commands.conditions import AllowScan, FilterText, Pairs, Where, parameters_of
from app.commands.consoles import errors, json_text, printable
from app.commands.reconnection import page_by_page, way_on
from app.commands.running import ClassName, Database, DataUrl, Json, KeyFile, data_service
from app.commands.service_client import ServiceClient, reason_of

__all__ = ["delete", "update"]

_COUNTED: Final = ("matched", "written", "failed")
_TIMEOUT_S: Final = 60.0
"""More than the seconds that the service works for one request."""

All = Annotated[bool, typer.Option("--all", help="All objects of the class.")]
After = Annotated[str | None, typer.Option(help="Only ids that come after this one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the objects, and write none.")]


def _check_key(text: str | None) -> str | None:
    """Refuse what the service would; without it, every call has a key of its own."""
    from app.http.idempotency import parse_key
    from app.http.problems import HttpError

    if text is None:
        return None
    try:
        parse_key(text)
    except HttpError as error:
        raise typer.BadParameter(f"{error.locations[0].detail}.") from None
    return text.strip()


Key = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        callback=_check_key,
        help="That of a call which ended early: it then writes no object twice.",
    ),
]


def update(
    database: Database,
    class_name: ClassName,
    patch: Annotated[str, typer.Argument(metavar="JSON", help="What is changed of each.")],
    *,
    operators: Annotated[
        bool, typer.Option("--operators", help='It has operators: {"hits": {"inc": 1}}.')
    ] = False,
    where: Where = None,
    filter_: FilterText = None,
    all_: All = False,
    allow_scan: AllowScan = False,
    after: After = None,
    idempotency_key: Key = None,
    dry_run: DryRun = False,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Change all objects of a class that meet all conditions: docs/data-api.md.

    An object is a merge patch (RFC 7396), an array a JSON Patch (RFC 6902). Each object is changed
    by itself; one that refuses it is reported, and the others are changed. Ends with 1 if one did.
    If the service stops answering it goes on once it answers again; if that takes too long, or
    after Ctrl-C, the message says how to go on.
    """
    from app.http.negotiation import JSON, UPDATE

    sent = {"content": patch.encode(), "headers": {"Content-Type": UPDATE if operators else JSON}}
    flags = {"allow_scan": allow_scan, "all": all_, "dry_run": dry_run}
    parameters = parameters_of(where, filter_, **flags)
    with data_service(url, key_file) as service:
        key = idempotency_key or uuid4().hex
        run = _Run(service, "PATCH", f"/{database}/{class_name}", sent, key)
        run.work(parameters, after)
    run.report("changed", is_dry=dry_run, json=json)


def delete(
    database: Database,
    class_name: ClassName,
    *,
    where: Where = None,
    filter_: FilterText = None,
    all_: All = False,
    allow_scan: AllowScan = False,
    after: After = None,
    idempotency_key: Key = None,
    dry_run: DryRun = False,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Delete all objects of a class that meet all conditions: docs/data-api.md.

    Each object is deleted by itself. Ends with 1 if one was not. If the service stops answering it
    goes on once it answers again; if that takes too long, or after Ctrl-C, the message says how to
    go on.
    """
    flags = {"allow_scan": allow_scan, "all": all_, "dry_run": dry_run}
    parameters = parameters_of(where, filter_, **flags)
    with data_service(url, key_file) as service:
        key = idempotency_key or uuid4().hex
        run = _Run(service, "DELETE", f"/{database}/{class_name}", {}, key)
        run.work(parameters, after)
    run.report("deleted", is_dry=dry_run, json=json)


@dataclass
class _Run:
    """Requests that go on where the one before ended, until all objects are done.

    They have one key, so that an object whose answer was lost is not changed twice.
    """

    _service: ServiceClient
    _method: str
    _path: str
    _sent: dict[str, Any]
    _key: str
    _counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))
    _sample: list[str] = field(default_factory=list)

    def work(self, parameters: Pairs, after: str | None) -> None:
        headers = {**self._sent.pop("headers", {}), "Idempotency-Key": self._key}
        how = {"headers": headers, "timeout": _TIMEOUT_S, **self._sent}

        def send(begin: dict[str, str]) -> dict[str, Any]:
            given = [*parameters, *begin.items()]
            return self._service.request(self._method, self._path, params=given, **how)

        page_by_page(send, self._count, after, self._goes_on)

    def _goes_on(self, after: str | None) -> str:
        return way_on(idempotency_key=self._key, after=after)

    def report(self, done: str, *, is_dry: bool, json: bool) -> None:
        """Print what became of the objects; ends the command."""
        counts = self._counts
        if json:
            typer.echo(json_text({**counts, "sample": self._sample}))
        elif is_dry:
            named = f": {printable(', '.join(self._sample))}" if self._sample else ""
            typer.echo(f"Objects that would be {done}: {counts['matched']:,}{named}")
        else:
            typer.echo(f"Objects {done}: {counts['written']:,}; refused: {counts['failed']:,}.")
        raise typer.Exit(1 if counts["failed"] else 0)

    def _count(self, answer: dict[str, Any]) -> str:
        """Add what became of some objects, and report those that were refused."""
        for name in _COUNTED:
            self._counts[name] += answer.get(name, 0)
        self._sample = self._sample or answer.get("sample", [])
        for problem in answer.get("problems", ()):
            reason = printable(f"{problem['id']}: {reason_of(problem)}")
            errors.print(reason, markup=False, soft_wrap=True)
        return f"{self._counts['matched']:,} objects"
