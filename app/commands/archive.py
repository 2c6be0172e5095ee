"""``portolan backup`` and ``portolan restore``, as in docs/backup.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.commands.consoles import console, printable, progress_display
from app.commands.running import overridden, run

if TYPE_CHECKING:
    from app.settings.main import MediatorSettings
    from mediator.archive.backup import ArchiveProgress
    from mediator.archive.files import Manifest
    from mediator.archive.restore import Restored

__all__ = ["backup", "restore"]

Directory = Annotated[Path, typer.Argument(help="The directory of the backup.")]
Databases = Annotated[
    list[str] | None, typer.Option("--database", help="Only this database; repeatable.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Use the embedded stores of this directory; no service may be running on them."
    ),
]


def backup(directory: Directory, *, database: Databases = None, data_dir: DataDir = None) -> None:
    """Save databases and the catalogue in a new directory, while they are in use."""

    async def save(settings: MediatorSettings) -> None:
        from app.service.mediators import reading_mediator
        from mediator.archive.backup import Backup

        async with reading_mediator(settings) as mediator:
            with progress_display() as show:
                archive = Backup(mediator.installation, partial(_show_progress, show))
                manifest = await archive.write(directory, database or None)
        console.print(_summary(manifest))

    _run(save, data_dir)


def restore(
    directory: Directory,
    *,
    database: Databases = None,
    dry_run: Annotated[
        bool, typer.Option(help="Check the backup, and print what would be restored.")
    ] = False,
    force: Annotated[
        bool, typer.Option(help="Overwrite databases: objects that the backup lacks are deleted.")
    ] = False,
    keys: Annotated[
        bool,
        typer.Option(
            help="Add tenants and keys even where some exist, including keys revoked since."
        ),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Restore a backup. Nothing else should write to its databases meanwhile."""

    async def load(settings: MediatorSettings) -> None:
        from app.service.mediators import writing_mediator
        from app.settings.main import CacheSettings
        from mediator.archive.restore import Restoration

        async with writing_mediator(settings, CacheSettings()) as mediator:
            with progress_display() as show:
                restoration = Restoration(mediator.installation, partial(_show_progress, show))
                restored = await restoration.run(
                    directory, database or None, dry_run=dry_run, force=force, keys=keys
                )
        for line in _outcome(restored, dry_run=dry_run):
            console.print(printable(line), markup=False)

    _run(load, data_dir)


def _summary(manifest: Manifest) -> str:
    files = manifest.files().values()
    objects = sum(f.lines for d in manifest.databases.values() for f in d.classes.values())
    size = sum(file.bytes for file in files)
    return f"{objects:,} objects of {len(manifest.databases)} databases in {size:,} bytes."


def _outcome(restored: Restored, *, dry_run: bool) -> Iterator[str]:
    yield "The backup is whole. This would be restored:" if dry_run else "Restored:"
    yield f"  databases created: {', '.join(restored.created) or 'none'}"
    yield f"  databases overwritten: {', '.join(restored.overwritten) or 'none'}"
    yield f"  schema histories restored: {', '.join(restored.histories) or 'none'}"
    yield f"  objects put: {restored.put:,}"
    if restored.left_out:
        yield (
            f"  rows of tenants, their databases and keys left out: {restored.left_out:,}; some"
            " exist already, and these may have been removed or revoked since: --keys adds them"
        )
    if not dry_run:
        yield f"  objects deleted: {restored.deleted:,}"
        if restored.superseded:
            yield (
                f"  unique values lost to objects that took them later: {restored.superseded:,},"
                f" of {'; '.join(restored.superseded_of)}"
            )
        yield f"  rows added to the catalogue: {restored.rows:,}"
        yield "  caches are revalidated, and feeds start over"


def _show_progress(show: Callable[[str], None], progress: ArchiveProgress) -> None:
    class_path = f"{progress.database}/{progress.class_name}"
    show(f"{class_path}: {progress.done:,} objects {progress.what}")


def _run(do: Callable[[MediatorSettings], Awaitable[None]], data_dir: Path | None) -> None:
    from app.service.serving import on_stores
    from app.settings.main import MediatorSettings

    embedded = None if data_dir is None else True
    settings = overridden(MediatorSettings(), embedded=embedded, data_dir=data_dir)

    async def run_on_stores() -> None:
        async with on_stores(settings) as (ready, _):
            await do(ready)

    run(run_on_stores())
