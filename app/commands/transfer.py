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

from app.commands.consoles import errors, json_text, printable, progress_display
from app.commands.reconnection import Reconnection, interruptible, resume_hint
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
"""More than a service accepts by default; a longer line ends an import."""

_MAX_CHARACTERS: Final = 255

_Line: TypeAlias = tuple[int, bytes]
"""A line with its number, from 1 on."""


def _check_import_id(text: str | None) -> str | None:
    # An empty id is an unset variable: imports would overwrite each other's objects.
    if text is not None and not (text.isprintable() and 0 < len(text) <= _MAX_CHARACTERS):
        raise typer.BadParameter(f"1 to {_MAX_CHARACTERS} printable characters are expected.")
    return text


def import_(
    database: Database,
    class_name: ClassName,
    file: Annotated[Path, typer.Argument(help="NDJSON; - is standard input.")] = Path("-"),
    *,
    skip: Annotated[int, typer.Option(min=0, help="Lines to skip, as imported already.")] = 0,
    import_id: Annotated[
        str | None,
        typer.Option(
            callback=_check_import_id,
            help="Lines without an id get one derived from this and their number; the default is"
            " a digest of the file or, for a pipe, a random text.",
        ),
    ] = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Put each line of a file into a class: one JSON object.

    Refused lines are reported, and do not stop the import. Exits with 1 if there were any. If the
    connection is lost, the command waits for the service and continues; if that takes too long, or
    the file cannot be read to its end, a message says how to resume.

    A repeated import of an unchanged file creates no further objects, even if its lines have no
    ids. Further copies of its objects need another --import-id.
    """
    from app.commands.line_ids import LineIds

    with ExitStack() as stack:
        stack.enter_context(readable_errors(NOT_DONE, OSError))
        source = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        service = stack.enter_context(data_service(url, key_file))
        show = stack.enter_context(progress_display())
        path, ids = f"/{database}/{class_name}/import", LineIds(source, import_id)
        run = _Import(service, path, ids, skip)
        stack.enter_context(interruptible(run.hint))
        lines = _Lines(source, skip, ids)
        run.work(batches_by_size(lines, lambda line: len(line[1]), _LINES, _BYTES), show)
        if lines.fault:
            raise OSError(f"{lines.fault}.{run.hint()}")
    run.report(json=json)


@dataclass
class _Import:
    """Puts blocks of lines, and counts them.

    Attributes:
        next: Lines that are finished or skipped.
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
            while remaining := [line for number, line in block if number > self.next]:
                self._put(remaining, reconnection)
            show(f"{self.next:,} lines")

    def _put(self, lines: list[bytes], reconnection: Reconnection) -> None:
        from app.http.negotiation import NDJSON

        headers = {"Content-Type": NDJSON}
        options = {"content": b"".join(lines), "headers": headers, "timeout": _TIMEOUT_S}
        try:
            answer = self._service.request("POST", self._path, **options)
        except ServiceRefused as refused:
            before = self.next
            self._count(refused.problem)
            if self.next > before:
                reconnection.answered()
            reconnection.wait(refused, self.hint())
        else:
            self._count({**answer, "next": len(lines)})
            reconnection.answered()

    def _count(self, answer: dict[str, Any]) -> None:
        """Add the outcomes of some lines; print the refusals."""
        for problem in answer.get("problems", ()):
            reason = f"Line {self.next + problem['line']}: {printable(reason_of(problem))}"
            errors.print(reason)
        self.imported += answer.get("imported", 0)
        self.failed += answer.get("failed", 0)
        self.next += answer.get("next", 0)

    def hint(self) -> str:
        """Return how to import the remaining lines."""
        return resume_hint(skip=self.next, import_id=self._ids.import_id)

    def report(self, *, json: bool) -> None:
        """Print the outcomes of the lines; ends the command."""
        if json:
            counts = {"imported": self.imported, "failed": self.failed, "next": self.next}
            typer.echo(json_text(counts))
        else:
            typer.echo(f"Objects imported: {self.imported:,}; lines refused: {self.failed:,}.")
        if self.failed and (import_id := self._ids.import_id) is not None:
            advice = f"with these lines corrected: --import-id {shlex.quote(import_id)}"
            errors.print(f"To import the file again, {advice}")
        raise typer.Exit(1 if self.failed else 0)


@dataclass
class _Lines:
    """The lines after those to skip, with ids, up to one that cannot be put.

    Attributes:
        fault: The fault of that line; empty if there is none.
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
                    yield number, self._ids.with_id(number, line)
        except OSError as error:
            self.fault = f"what follows line {number} cannot be read: {error}"


def export(
    database: Database,
    class_name: ClassName,
    *,
    output: Annotated[
        Path | None, typer.Option(help="A file, which is written atomically; else stdout.")
    ] = None,
    fields: Annotated[str | None, typer.Option(help="Only these fields, as in hits,title.")] = None,
    after: Annotated[str | None, typer.Option(help="Only ids after this one.")] = None,
    url: DataUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Print all objects of a class, each as a line of JSON, in the order of their ids.

    If the connection is lost, the command continues after the last object when the service answers
    again. --after continues the output of an interrupted export; a file is written from the start.
    """
    from spark_jobs.atomic_file import atomic_file

    options = {"fields": fields, "after": after}
    parameters = {name: value for name, value in options.items() if value is not None}
    with ExitStack() as stack:
        stack.enter_context(readable_errors(NOT_DONE, OSError))
        service = stack.enter_context(data_service(url, key_file))
        target: BinaryIO = sys.stdout.buffer
        if output is not None:
            target = stack.enter_context(atomic_file(output))
        show = stack.enter_context(progress_display())
        run = _Export(service, f"/{database}/{class_name}/export", parameters)
        # An incomplete file is removed: there is nothing to resume.
        hint = run.hint if output is None else str
        stack.enter_context(interruptible(hint))
        for count, line in enumerate(run.lines(hint), start=1):
            target.write(line)
            if count % _LINES == 0:
                show(f"{count:,} objects")
        target.flush()
    errors.print(f"Objects exported: {run.count:,}.")


@dataclass
class _Export:
    """Reads complete lines; a broken export continues after the last of them."""

    _service: ServiceClient
    _path: str
    _parameters: dict[str, str]
    count: int = 0
    _last: bytes = b""

    def lines(self, hint: Callable[[], str]) -> Iterator[bytes]:
        from app.http.negotiation import NDJSON

        reconnection = Reconnection()
        while True:
            parameters = {**self._parameters, **self._after()}
            try:
                with self._service.stream("GET", self._path, NDJSON, params=parameters) as answer:
                    for line in lines_of(answer):
                        reconnection.answered()
                        yield line
                        self._last = line
                        self.count += 1
            except ServiceRefused as refused:
                reconnection.wait(refused, hint())
            else:
                return

    def hint(self) -> str:
        """Return how to export the remaining objects, if any was exported."""
        return resume_hint(**self._after())

    def _after(self) -> dict[str, str]:
        import orjson

        return {"after": orjson.loads(self._last)["id"]} if self._last else {}
