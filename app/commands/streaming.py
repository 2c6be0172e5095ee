"""What commands share that execute a streaming query on Spark, with its state in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.running import NOT_DONE, readable_errors

if TYPE_CHECKING:
    from spark_jobs.commit_directory import CommitDirectory
    from spark_jobs.session import SparkOptions

__all__ = ["Follow", "locked_session", "spark_options", "trigger"]

Follow = Annotated[
    bool, typer.Option("--follow", help="Wait for what arrives later until interrupted.")
]


def spark_options() -> SparkOptions:
    """Return where Spark runs, before what needs it is imported; without Spark the command ends."""
    from app.settings.main import JobSettings
    from spark_jobs.session import SparkUnavailable, check_spark

    options = JobSettings().spark_options()
    with readable_errors(NOT_DONE, SparkUnavailable):
        check_spark(options)
    return options


@contextmanager
def locked_session(
    options: SparkOptions, of: str, directory: CommitDirectory[Any], *failures: type[Exception]
) -> Iterator[Any]:
    """Open a session whose driver is this process, and exclude others from a directory.

    Batches of Spark Connect would be driven by its server, which has no lock on the directory.

    Args:
        of: What is executed, for the error.
        directory: Of the state.
        failures: Further errors that end the command with a sentence.
    """
    from spark_jobs.commit_directory import StateBusy, StateMismatch
    from spark_jobs.session import SparkUnavailable, driven_session
    from spark_jobs.streaming_queries import Failed

    own = (SparkUnavailable, Failed, StateBusy, StateMismatch, OSError)
    with (
        readable_errors(NOT_DONE, *own, *failures),
        driven_session(options, of) as session,
        directory.locked(),
    ):
        yield session


def trigger(*, follow: bool) -> dict[str, bool] | None:
    """Say when batches begin: all that is there and no more, or as soon as there is something."""
    return None if follow else {"availableNow": True}
