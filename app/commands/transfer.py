"""``portolan import`` and ``portolan export``: all objects of a class, as NDJSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from app.commands.consoles import errors, printable, shown_progress
from app.commands.running import (
    NOT_DONE,
    ClassName,
    Database,
    DataUrl,
    Json,
    KeyFile,
    data_service,
    readable_errors,
)

if TYPE_CHECKING:
    from app.commands.service_client import ServiceClient

__all__ = ["export", "import_"]

_LINES: Final = 1_000
_BYTES: Final = 2**20
_TIMEOUT_S: Final = 300.0
_LINE_BYTES: Final = 16 * 2**20
"""More than a service takes by default; a longer line ends an import."""


def import_(
    database: Database,
    class_name: ClassName,
    file: Annotated[Path, typer.Argument(help="NDJSON; - is standard input.")] = Path("-"),
    *,
    skip: Annotated[int, typer.Option(min=0, help="Lines that are done already.")] = 0,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Put each line of a file into a class: one JSON object with its id.

    A line that is refused is reported, and the others are put. Ends with 1 if one was. If the
    service stops answering, the message says how many lines are to be skipped to go on; to put a
    line again changes nothing, unless it has no id.
    """
    done = {"imported": 0, "failed": 0, "next": skip}
    with ExitStack() as stack:
        stack.enter_context(readable_errors(NOT_DONE, OSError))
        source = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        service = stack.enter_context(data_service(url, key_file))
        show = stack.enter_context(shown_progress())
        _import(service, f"/{database}/{class_name}/import", source, done, show)
    if json:
        import orjson

        typer.echo(orjson.dumps(done).decode())
    else:
        typer.echo(f"Objects imported: {done['imported']:,}; lines refused: {done['failed']:,}.")
    raise typer.Exit(1 if done["failed"] else 0)


def _import(
    service: ServiceClient,
    path: str,
    source: BinaryIO,
    done: dict[str, int],
    show: Callable[[str], None],
) -> None:
    from app.commands.service_client import ServiceRefused
    from app.http.negotiation import NDJSON

    for start, lines in _blocks(source, done["next"]):
        try:
            answer = service.request(
                "POST",
                path,
                content=b"".join(lines),
                headers={"Content-Type": NDJSON},
                timeout=_TIMEOUT_S,
            )
        except ServiceRefused as refused:
            if not refused.transient and "next" not in refused.problem:
                raise
            _count(done, start, refused.problem)
            raise ServiceRefused(f"{refused} To go on: --skip {done['next']}") from None
        _count(done, start, {**answer, "next": len(lines)})
        show(f"{done['next']:,} lines")


def _count(done: dict[str, int], start: int, answer: dict[str, Any]) -> None:
    """Add what became of the lines behind `start`; report those that were refused."""
    from app.commands.service_client import reason_of

    for problem in answer.get("problems", ()):
        line = start + problem["line"]
        errors.print(f"Line {line}: {printable(reason_of(problem))}", markup=False, soft_wrap=True)
    done["imported"] += answer.get("imported", 0)
    done["failed"] += answer.get("failed", 0)
    done["next"] = start + answer.get("next", 0)


def _blocks(source: BinaryIO, skip: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield lines, as many as one request takes, and the number of lines before them."""
    lines: list[bytes] = []
    size = read = 0
    while line := source.readline(_LINE_BYTES):
        if len(line) == _LINE_BYTES:
            raise OSError(f"line {read + 1} has more than {_LINE_BYTES:,} bytes")
        read += 1
        if read <= skip:
            continue
        lines.append(line)
        size += len(line)
        if len(lines) == _LINES or size >= _BYTES:
            yield read - len(lines), lines
            lines, size = [], 0
    if lines:
        yield read - len(lines), lines


def export(
    database: Database,
    class_name: ClassName,
    *,
    output: Annotated[
        Path | None, typer.Option(help="A file, which appears when it is complete; else stdout.")
    ] = None,
    fields: Annotated[str | None, typer.Option(help="Only these, as in hits,title.")] = None,
    after: Annotated[str | None, typer.Option(help="Only ids that come after this one.")] = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Print all objects of a class, each as a line of JSON, in the order of their ids.

    If the connection is lost it goes on behind the last object, once the service answers again.
    """
    from spark_jobs.atomic_file import atomic_file

    given = {"fields": fields, "after": after}
    parameters = {name: value for name, value in given.items() if value is not None}
    with ExitStack() as stack:
        stack.enter_context(readable_errors(NOT_DONE, OSError))
        service = stack.enter_context(data_service(url, key_file))
        target: BinaryIO = sys.stdout.buffer
        if output is not None:
            target = stack.enter_context(atomic_file(output))
        show = stack.enter_context(shown_progress())
        count = 0
        for line in _exported(service, f"/{database}/{class_name}/export", parameters):
            target.write(line)
            count += 1
            if count % _LINES == 0:
                show(f"{count:,} objects")
        target.flush()
    errors.print(f"Objects exported: {count:,}.")


def _exported(service: ServiceClient, path: str, parameters: dict[str, str]) -> Iterator[bytes]:
    """Yield whole lines; an export that breaks off is continued behind the last of them."""
    import orjson

    from app.commands.service_client import Reconnection, ServiceRefused, lines_of

    reconnection = Reconnection()
    last = b""
    while True:
        if last:
            parameters = {**parameters, "after": orjson.loads(last)["id"]}
        try:
            with service.stream("GET", path, params=parameters) as answer:
                for line in lines_of(answer):
                    reconnection.answered()
                    last = line
                    yield line
        except ServiceRefused as refused:
            reconnection.wait(refused)
        else:
            return
