"""``portolan encode``: encode people for private linkage on their owner's machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.commands.consoles import errors
from app.commands.running import readable_errors
from spark_jobs.linkage.private.clk import Hardening

__all__ = ["encode"]

Harden = Annotated[list[Hardening] | None, typer.Option(help="Hardening; repeatable.")]
Normalise = Annotated[bool, typer.Option(help="Remove case and diacritics first.")]
Salt = Annotated[str | None, typer.Option(help="A field that never changes for a person.")]
Source = Annotated[Path | None, typer.Argument(help="People: CSV, or NDJSON (.ndjson, .jsonl).")]
Target = Annotated[Path | None, typer.Argument(help="File for ids and encodings: CSV or NDJSON.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes; by default one for each core.")
]


def encode(
    source: Source = None,
    target: Target = None,
    *,
    keys: Annotated[Path, typer.Option(help="File with the keys that both owners share.")],
    new_keys: Annotated[bool, typer.Option(help="Create the key file and exit.")] = False,
    fields: Annotated[str, typer.Option(help="Linkage fields, separated by commas.")] = "",
    id_field: Annotated[str, typer.Option(help="The field that names a record.")] = "id",
    bits: Annotated[int, typer.Option(min=2, help="Length of the bit array.")] = 1000,
    hashes: Annotated[int, typer.Option(min=1, help="Bits that each n-gram sets.")] = 20,
    harden: Harden = None,
    salt: Salt = None,
    normalise: Normalise = True,
    workers: Workers = None,
) -> None:
    """Encode people for private linkage: keys and names stay here, encodings may leave.

    Both owners use the same keys, fields and options. docs/linkage-security.md describes
    the attacks that an encoding withstands, and those that it does not.
    """
    from spark_jobs.linkage.private.clk import ClkShape
    from spark_jobs.linkage.private.key_file import BadKeyFile, make_keys, read_keys
    from spark_jobs.linkage.private.owner import BadRecords, Encoding, encode_file

    failures = (BadKeyFile, BadRecords, OSError, ValueError)
    with readable_errors("Nothing was encoded", *failures):
        if new_keys:
            make_keys(keys)
            errors.print(f"Created {keys}: share the keys with the other owner only.")
            return
        names = tuple(name for name in fields.split(",") if name)
        if source is None or target is None or not names:
            raise typer.BadParameter("SOURCE, TARGET and --fields are needed to encode.")
        shape, hardening = ClkShape(bits, hashes), tuple(harden or ())
        processes = workers or os.cpu_count() or 1
        encoding = Encoding(names, id_field, shape, hardening, salt, normalise, processes)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, TimeElapsedColumn(), console=errors) as progress:
            task = progress.add_task("Encoding", total=None)
            count = encode_file(
                source,
                target,
                encoding,
                read_keys(keys),
                lambda records: progress.advance(task, records),
            )
        errors.print(f"{count:,} records, {encoding.bits} bits each: {target}")
