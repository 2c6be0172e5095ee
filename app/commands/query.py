"""``portolan query``: print the objects of a class that meet conditions."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from app.commands.conditions import AllowScan, FilterText, Pairs, Where, parameters_of
from app.commands.consoles import console, errors, json_text, print_document, printable
from app.commands.reconnection import Reconnection
from app.commands.running import ClassName, Database, DataUrl, Json, KeyFile, data_service
from app.commands.service_client import ServiceClient

if TYPE_CHECKING:
    from rich.table import Table


__all__ = ["query"]

_PAGE: Final = 1_000


def query(
    database: Database,
    class_name: ClassName,
    *,
    where: Where = None,
    filter_: FilterText = None,
    order: Annotated[str | None, typer.Option(help="Paths, as in -hits,lastname.")] = None,
    fields: Annotated[
        str | None, typer.Option(help="Only these fields, as in firstname,hits.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of objects.")] = 100,
    count: Annotated[
        Literal["exact", "estimated"] | None,
        typer.Option(help="Print the number of objects instead, regardless of the limit."),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All objects, regardless of the limit.")
    ] = False,
    allow_scan: AllowScan = False,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Print the objects of a class that meet all conditions: docs/queries.md.

    Prints tables on a terminal; with --json, or elsewhere, an object as JSON in each line.
    """
    settings = {"order": order, "fields": fields}
    conditions = parameters_of(where, filter_, allow_scan=allow_scan)
    presentation = [(name, value) for name, value in settings.items() if value is not None]
    as_table = not json and sys.stdout.isatty()
    with data_service(url, key_file) as service:
        path = f"/{database}/{class_name}"
        if count is not None:
            # Fields and order do not affect the total.
            _print_total(service, path, conditions, count, json=json)
            return
        for page in _pages(service, path, [*conditions, *presentation], None if all_ else limit):
            _print(page, fields, as_table=as_table)


def _print_total(
    service: ServiceClient, path: str, conditions: Pairs, count: str, *, json: bool
) -> None:
    parameters = [*conditions, ("fields", "id"), ("limit", "1"), ("count", count)]
    answer = Reconnection().repeat(lambda: service.request("GET", path, params=parameters))
    if json:
        print_document({name: answer[name] for name in ("total", "count")})
    else:
        typer.echo(answer["total"])


def _pages(
    service: ServiceClient, path: str, parameters: Pairs, remaining: int | None
) -> Iterator[list[dict[str, Any]]]:
    reconnection = Reconnection()
    after: Pairs = []
    while remaining is None or remaining > 0:
        limit = _PAGE if remaining is None else min(remaining, _PAGE)
        page_parameters = [*parameters, ("limit", str(limit)), *after]
        answer = reconnection.repeat(partial(service.request, "GET", path, params=page_parameters))
        yield answer["items"]
        if answer["next"] is None:
            return
        after = [("after", answer["next"])]
        remaining = None if remaining is None else remaining - len(answer["items"])
    errors.print("There are more; --limit or --all shows them.")


def _print(page: list[dict[str, Any]], fields: str | None, *, as_table: bool) -> None:
    import orjson

    if as_table:
        console.print(_table(page, fields.split(",") if fields else ()))
        return
    lines = b"".join(orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE) for item in page)
    sys.stdout.buffer.write(lines)
    sys.stdout.buffer.flush()


def _table(page: Sequence[dict[str, Any]], fields: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    names = dict.fromkeys(("id", *fields))
    for item in page:
        names |= dict.fromkeys(item)
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(Text(name))
    for item in page:
        table.add_row(*[Text(_cell(item, name)) for name in names])
    return table


def _cell(item: dict[str, Any], name: str) -> str:
    if name not in item:
        return ""
    value = item[name]
    return printable(value if isinstance(value, str) else json_text(value))
