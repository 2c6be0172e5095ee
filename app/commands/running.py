"""Shared by commands: options, settings that they override, keys, and one-sentence errors."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from app.commands.consoles import errors
from app.commands.service_client import ServiceClient, ServiceRefused
from app.service.interruption import Interrupted, NotClosed
from mediator.base.errors import Invalid, MediatorError
from mediator.embedded.directories import DataDirectoryBusy
from mediator.embedded.port import EmbeddedStartError
from mediator.schema.ids import NAME

if TYPE_CHECKING:
    from pydantic import SecretStr

    from app.settings.main import HttpSettings, MediatorSettings

__all__ = [
    "NOT_DONE",
    "SUFFIXES",
    "AdminPort",
    "AdminUrl",
    "ClassName",
    "DataDir",
    "DataUrl",
    "Database",
    "Json",
    "KeyFile",
    "Port",
    "Yes",
    "admin_service",
    "check_name",
    "data_service",
    "key_in",
    "mistakes_in_files",
    "overridden",
    "parse_lines",
    "read_bounded",
    "read_document",
    "readable_errors",
    "run",
]

_MAX_LINE_BYTES: Final = 2**20

DataDir = Annotated[Path | None, typer.Option(help="Where embedded stores keep their data.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the data API.")]
AdminPort = Annotated[int | None, typer.Option(min=0, max=65535, help="Port of the admin API.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Holds the key; by default PORTOLAN_KEY."),
]

DataUrl = Annotated[
    str | None, typer.Option("--url", help="Address of the data API; by default from the settings.")
]
AdminUrl = Annotated[
    str | None,
    typer.Option("--url", help="Address of the admin API; by default from the settings."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def check_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is not a name: it must match {NAME.pattern}.")
    return text


Database = Annotated[str, typer.Argument(callback=check_name, help="The database.")]
ClassName = Annotated[str, typer.Argument(metavar="CLASS", callback=check_name, help="The class.")]

_CANNOT_RUN: Final[tuple[type[Exception], ...]] = (
    DataDirectoryBusy,
    EmbeddedStartError,
    MediatorError,
    OSError,
)

_MAX_KEY_LENGTH: Final = 2**14
_YAML: Final = frozenset({".yaml", ".yml"})
SUFFIXES: Final = _YAML | {".json"}
"""Suffixes of document files."""

NOT_DONE: Final = "That was not done"

S = TypeVar("S", "HttpSettings", "MediatorSettings")
T = TypeVar("T")


def run(task: Coroutine[Any, Any, None], *failures: type[Exception], who: str = "Portolan") -> None:
    """Run a command; an expected failure ends it with a sentence instead of a traceback.

    Args:
        task: The command.
        failures: Further expected exceptions.
        who: The subject of the sentence, which cannot run.
    """
    import uvloop

    from app.settings.main import MissingSetting

    expected: tuple[type[Exception], ...]
    expected = (Interrupted, MissingSetting, *_CANNOT_RUN, *failures)
    report = partial(_report, who, expected)
    try:
        uvloop.run(_run_to_exit(task, report))
    except expected as error:
        raise typer.Exit(report(error)) from None


def _report(who: str, expected: tuple[type[Exception], ...], error: BaseException | None) -> int:
    """Print what ended a command; return its exit status."""
    if error is None:
        return 0
    if isinstance(error, Interrupted | asyncio.CancelledError):
        errors.print("Interrupted.")
        return 130
    if isinstance(error, expected):
        locations = [
            f" {location.pointer}: {location.detail}."
            for location in getattr(error, "locations", ())
        ]
        errors.print(f"{who} cannot run: {error}{''.join(locations)}")
    else:
        traceback.print_exception(error)
    return 1


async def _run_to_exit(
    task: Coroutine[Any, Any, None], report: Callable[[BaseException | None], int]
) -> None:
    try:
        await task
    except NotClosed as error:
        errors.print("Some system does not answer: its connections are cut off.")
        os._exit(report(error.__cause__))  # the event loop would wait for the connections


@contextmanager
def readable_errors(action: str, *failures: type[Exception]) -> Iterator[None]:
    """End with 1 and a sentence instead of a traceback."""
    try:
        yield
    except failures as error:
        if isinstance(error, BrokenPipeError):
            raise  # the reader has gone, as with `| head`: end without a message
        errors.print(f"{action}: {error}")
        raise typer.Exit(1) from None


@contextmanager
def mistakes_in_files(*failures: type[Exception]) -> Iterator[None]:
    """End with 1 and a line for each mistake in a file, or for another failure."""
    try:
        yield
    except Invalid as error:
        lines = [f"{location.pointer}: {location.detail}." for location in error.locations] or [
            error.detail
        ]
    except failures as error:
        lines = [str(error)]
    else:
        return
    errors.print("\n".join(lines))
    raise typer.Exit(1)


def data_service(url: str | None, key_file: Path | None) -> AbstractContextManager[ServiceClient]:
    """Connect to the data API of a service; failures end the command with a sentence."""
    return _service(url, "data_url", "/v1", key_file)


def admin_service(url: str | None, key_file: Path | None) -> AbstractContextManager[ServiceClient]:
    """Connect to the admin API of a service; failures end the command with a sentence."""
    return _service(url, "admin_url", "/admin/v1", key_file)


@contextmanager
def _service(
    url: str | None, setting: str, base: str, key_file: Path | None
) -> Iterator[ServiceClient]:
    from app.settings.main import HttpSettings

    address = url or getattr(HttpSettings(), setting)
    with (
        readable_errors(NOT_DONE, ServiceRefused),
        ServiceClient(address, key_in(key_file), base) as service,
    ):
        yield service


def overridden(settings: S, **options: Any) -> S:
    """Override settings with the options that are not None."""
    overrides = {name: value for name, value in options.items() if value is not None}
    return type(settings).model_validate({**settings.model_dump(), **overrides})


def read_document(path: Path, max_bytes: int, kind: str) -> dict[str, Any]:
    """Read a JSON object from a file of a kind; the suffix says whether it is YAML."""
    parse = _parse_yaml if path.suffix.lower() in _YAML else _parse_json
    document = parse(path, read_bounded(path, max_bytes, kind))
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{path} is not a JSON object.")
    return document


def read_bounded(path: Path, max_bytes: int, kind: str) -> bytes:
    if path.stat().st_size > max_bytes:
        raise typer.BadParameter(f"A {kind} has {max_bytes:,} bytes at most.")
    return path.read_bytes()


def _parse_json(path: Path, text: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise typer.BadParameter(f"{path} is not JSON: {location}.") from None


def _parse_yaml(path: Path, text: bytes) -> Any:
    from app.commands.yaml_text import NotJson, parse_yaml

    try:
        return parse_yaml(text)
    except NotJson as error:
        raise typer.BadParameter(f"{path} is not JSON in YAML: {error}.") from None


def parse_lines(path: Path, parse: Callable[[Any], T]) -> Iterator[T]:
    """Parse the lines of an NDJSON file.

    Raises:
        ValueError: A line is not JSON, is too long, or is refused; names its number.
    """
    for number, document in _read_lines(path):
        try:
            yield parse(document)
        except Invalid as error:
            details = "; ".join(
                f"{location.pointer} {location.detail}" for location in error.locations
            )
            raise ValueError(f"line {number}: {details or error.detail}") from None


def _read_lines(path: Path) -> Iterator[tuple[int, Any]]:
    import orjson

    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(_MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > _MAX_LINE_BYTES:
                raise ValueError(f"line {number} has more than {_MAX_LINE_BYTES:,} bytes")
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                raise ValueError(f"line {number} is not JSON") from None
            yield number, document


def key_in(file: Path | None) -> SecretStr | None:
    """Return the key that a command sends, from a file or else from the settings."""
    from pydantic import SecretStr

    from app.settings.access import AccessSettings, is_key

    if file is None:
        return AccessSettings().key
    try:
        text = file.read_text("ascii", "replace")[:_MAX_KEY_LENGTH].strip()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from None
    if not is_key(text):
        raise typer.BadParameter(f"{file} holds no key: one line is expected.")
    return SecretStr(text)
