"""Reads keys from a file, never from a command line, which other users of the machine can see."""

from __future__ import annotations

import json
import secrets
import stat
from pathlib import Path
from typing import Final

from spark_jobs.linkage.private.clk import Keys

__all__ = ["BadKeyFile", "make_keys", "read_keys"]

_BYTES: Final = 32
_MIN_BYTES: Final = 16


class BadKeyFile(Exception):
    """The file has no keys, or others can read it; says what to do, without its content."""


def read_keys(path: Path) -> Keys:
    """Read both keys.

    Raises:
        BadKeyFile: It is missing, others can read it, or it does not hold two keys.
    """
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise BadKeyFile(f"Others may read {path}: chmod 600 {path}")
        members = json.loads(path.read_text())
        keys = Keys(bytes.fromhex(members["first"]), bytes.fromhex(members["second"]))
    except FileNotFoundError:
        raise BadKeyFile(f"There is no {path}; --new-keys creates it.") from None
    except (OSError, ValueError, TypeError, KeyError):
        shape = '{"first": "<hex>", "second": "<hex>"}'
        raise BadKeyFile(f"{path} does not hold {shape}.") from None
    if min(len(keys.first), len(keys.second)) < _MIN_BYTES:
        raise BadKeyFile(f"The keys in {path} are shorter than {_MIN_BYTES} bytes.")
    return keys


def make_keys(path: Path) -> None:
    """Write new keys to a new file that only its owner can read.

    Raises:
        BadKeyFile: The file exists, or cannot be written.
    """
    members = {name: secrets.token_hex(_BYTES) for name in ("first", "second")}
    try:
        # Private before the keys are written.
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(json.dumps(members) + "\n")
    except FileExistsError:
        raise BadKeyFile(f"{path} is there already.") from None
    except OSError as error:
        raise BadKeyFile(f"{path} cannot be written: {error.strerror}") from None
