"""``portolan import`` and ``portolan export``: all objects of a class, as NDJSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, TypeAlias

import typer

from app.commands.consoles import errors, json_text, printable, shown_progress
from app.commands.reconnection import Reconnection, interruptible, way_on
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
from app.commands.service_client import ServiceClient, ServiceRefused, lines_of, reason_of
from mediator.base.batches import batches_by_size

if TYPE_CHECKING:
    from app.commands.line_ids import LineIds

__all__ = ["export", "import_"]

_LINES: Final = 1_000
_BYTES: Final = 2**20
_TIMEOUT_S: Final = 300.0
_LINE_BYTES: Final = 16 * 2**20
"""More than a service takes by default; a longer line ends an import."""

_MOST_CHARACTERS: Final = 255

_Line: TypeAlias = tuple[int, bytes]
"""A line with its number, from 1 on."""


def _check_import_id(text: str | None) -> str | None:
    # An empty one is a variable that is not set: imports would overwrite each other's objects.
    if text is not None and not (text.isprintable() and 0 < len(text) <= _MOST_CHARACTERS):
        raise typer.BadParameter(f"1 to {_MOST_CHARACTERS} printable characters are expected.")
    return text


def import_(
    database: Database,
    class_name: ClassName,
    file: Annotated[Path, typer.Argument(help="NDJSON; - is standard input.")] = Path("-"),
    *,
    skip: Annotated[int, typer.Option(min=0, help="Lines that are done already.")] = 0,
    import_id: Annotated[
        str | None,
        typer.Option(
            callback=_check_import_id,
            help="Lines without an id get ids made of this and their number; else of the file's"
            " content, or, for a pipe, of a random text.",
        ),
    ] = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Put each line of a file into a class: one JSON object.

    A line that is refused is reported, and the others are put. Ends with 1 if one was. If the
    connection is lost it goes on once the service answers again; if that takes too long, or the
    file cannot be read to its end, the message says how to go on.

    To import a file again makes no further objects, even if its lines have no ids, as long as the
    file is unchanged. Further copies of its objects need another --import-id.
    """
    from app.commands.line_ids import LineIds

    with ExitStack() as stack:
        stack.enter_context(readable_errors(NOT_DONE, OSError))
        source = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        service = stack.enter_context(data_service(url, key_file))
        show = stack.enter_context(shown_progress())
        path, ids = f"/{database}/{class_name}/import", LineIds(source, import_id)
        run = _Import(service, path, ids, skip)
        stack.enter_context(interruptible(run.goes_on))
        lines = _Lines(source, skip, ids)
        run.work(batches_by_size(lines, lambda line: len(line[1]), _LINES, _BYTES), show)
        if lines.fault:
            raise OSError(f"{lines.fault}.{run.goes_on()}")
    run.report(json=json)


@dataclass
class _Import:
    """Puts blocks of lines, and counts them.

    Attributes:
        next: How many lines are done, those that were skipped among them.
    """

    _service: ServiceClient
    _path: str
    _ids: LineIds
    next: int
    imported: int = 0
    failed: int = 0

    def work(self, blocks: Iterator[list[_Line]], show: Callable[[str], None]) -> None:
        reconnection = Reconnection()
        for block in blocks:
            while left := [line for number, line in block if number > self.next]:
                self._put(left, reconnection)
            show(f"{self.next:,} lines")

    def _put(self, lines: list[bytes], reconnection: Reconnection) -> None:
        from app.http.negotiation import NDJSON

        headers = {"Content-Type": NDJSON}
        sent = {"content": b"".join(lines), "headers": headers, "timeout": _TIMEOUT_S}
        try:
            answer = self._service.request("POST", self._path, **sent)
        except ServiceRefused as refused:
            before = self.next
            self._count(refused.problem)
            if self.next > before:
                reconnection.answered()
            reconnection.wait(refused, self.goes_on())
        else:
            self._count({**answer, "next": len(lines)})
            reconnection.answered()

    def _count(self, answer: dict[str, Any]) -> None:
        """Add what became of some lines; report those that were refused."""
        for problem in answer.get("problems", ()):
            reason = f"Line {self.next + problem['line']}: {printable(reason_of(problem))}"
            errors.print(reason)
        self.imported += answer.get("imported", 0)
        self.failed += answer.get("failed", 0)
        self.next += answer.get("next", 0)

    def goes_on(self) -> str:
        """Say with which options the rest is imported."""
        return way_on(skip=self.next, import_id=self._ids.import_id)

    def report(self, *, json: bool) -> None:
        """Print what became of the lines; ends the command."""
        if json:
            counts = {"imported": self.imported, "failed": self.failed, "next": self.next}
            typer.echo(json_text(counts))
        else:
            typer.echo(f"Objects imported: {self.imported:,}; lines refused: {self.failed:,}.")
        if self.failed and (made := self._ids.import_id) is not None:
            again = f"with these lines corrected: --import-id {shlex.quote(made)}"
            errors.print(f"To import the file again, {again}")
        raise typer.Exit(1 if self.failed else 0)


@dataclass
class _Lines:
    """The lines behind those to skip, with ids, up to one that cannot be put.

    Attributes:
        fault: What is wrong with that one, if there is one.
    """

    _source: BinaryIO
    _skip: int
    _ids: LineIds
    fault: str = ""

    def __iter__(self) -> Iterator[_Line]:
        number = 0
        try:
            while line := self._source.readline(_LINE_BYTES):
                number += 1
                if len(line) == _LINE_BYTES:
                    self.fault = f"line {number} has more than {_LINE_BYTES:,} bytes"
                    return
                if number > self._skip:
                    yield number, self._ids.identified(number, line)
        except OSError as error:
            self.fault = f"what follows line {number} cannot be read: {error}"


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
    What was printed by one that ended early is continued by --after; a file is begun anew.
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
        run = _Export(service, f"/{database}/{class_name}/export", parameters)
        # A file that is not complete is removed: there is nothing to go on with.
        goes_on = run.goes_on if output is None else str
        stack.enter_context(interruptible(goes_on))
        for count, line in enumerate(run.lines(goes_on), start=1):
            target.write(line)
            if count % _LINES == 0:
                show(f"{count:,} objects")
        target.flush()
    errors.print(f"Objects exported: {run.count:,}.")


@dataclass
class _Export:
    """Reads whole lines; an export that breaks off is continued behind the last of them."""

    _service: ServiceClient
    _path: str
    _parameters: dict[str, str]
    count: int = 0
    _last: bytes = b""

    def lines(self, goes_on: Callable[[], str]) -> Iterator[bytes]:
        from app.http.negotiation import NDJSON

        reconnection = Reconnection()
        while True:
            sent = {**self._parameters, **self._after()}
            try:
                with self._service.stream("GET", self._path, NDJSON, params=sent) as answer:
                    for line in lines_of(answer):
                        reconnection.answered()
                        yield line
                        self._last = line
                        self.count += 1
            except ServiceRefused as refused:
                reconnection.wait(refused, goes_on())
            else:
                return

    def goes_on(self) -> str:
        """Say with which option the rest is exported, if anything was."""
        return way_on(**self._after())

    def _after(self) -> dict[str, str]:
        import orjson

        return {"after": orjson.loads(self._last)["id"]} if self._last else {}
