"""What a person sees of a run on a console: a bar for each stage, reasons, where the result is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.commands.consoles import errors

__all__ = ["EXIT", "bars", "check_target", "print_document", "show", "tell_reasons"]

EXIT: Final = {"done": 0, "stopped": 3, "failed": 1, "cancelled": 130}
"""The exit status of a command by the state in which its run ended."""


def bars() -> Progress:
    """Return bars that `show` brings up to date, on standard error."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    return Progress(*columns, console=errors)


def show(progress: Progress, stages: Iterable[dict[str, Any]]) -> None:
    """Bring the bars up to date: one for each stage that has begun."""
    known = {task.description: task.id for task in progress.tasks}
    for stage in stages:
        if stage["state"] == "waiting":
            continue
        name = stage["name"]
        total = stage["total"] or None
        if name not in known:
            known[name] = progress.add_task(name, total=total)
        progress.update(known[name], completed=stage["done"], total=total)
        if stage["state"] == "done":
            progress.stop_task(known[name])


def tell_reasons(state: str, reasons: Iterable[str]) -> None:
    """Say why a run was stopped or failed."""
    what = "was stopped" if state == "stopped" else "failed"
    for reason in reasons:
        errors.print(f"The run {what}: {reason}", markup=False)


def check_target(out: Path) -> None:
    """Refuse a file that no result could be written to, before anything is done for it."""
    from spark_jobs.runner.target import FORMS

    if out.suffix.lower() not in FORMS:
        raise typer.BadParameter(f"--out must end with one of {', '.join(FORMS)}.")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"There is no directory {out.parent}.")


def print_document(document: Any) -> None:
    """Print JSON for people, and for programs."""
    import orjson

    typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
