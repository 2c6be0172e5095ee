"""The option `--key-file` of commands that call a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from pydantic import SecretStr

__all__ = ["KeyFile", "key_in"]

_LONGEST: Final = 2**14

KeyFile = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Holds the key; PORTOLAN_KEY if not given."),
]


def key_in(file: Path | None) -> SecretStr | None:
    """Return the key that a command sends: the one in a file, else that of the settings.

    Raises:
        typer.BadParameter: The file holds none, or cannot be read.
    """
    from pydantic import SecretStr

    from app.settings.access import AccessSettings

    if file is None:
        return AccessSettings().key
    try:
        text = file.read_text("ascii", "replace")[:_LONGEST].strip()
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from None
    if not text or not text.isprintable() or " " in text:
        raise typer.BadParameter(f"{file} holds no key: one line is expected.")
    return SecretStr(text)
