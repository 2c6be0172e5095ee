"""An in-memory DuckDB database for one stage, which can be interrupted.

It accesses registered tables only, neither files nor the network. Each step runs in a separate
thread while the stage checks whether the run must end. An interruption between two queries hits
neither, so it is repeated until the work has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias, TypeVar

import duckdb
from splink import DuckDBAPI

from spark_jobs.runner.port import StageContext

__all__ = ["Step", "in_memory_database", "run_steps", "splink_api"]

_POLL_S: Final = 0.2
_MEMORY_LIMIT: Final = "50%"  # Spark gets the other half

ResultT = TypeVar("ResultT")
Step: TypeAlias = Callable[[duckdb.DuckDBPyConnection], ResultT]


@contextmanager
def in_memory_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that is deleted at the end of the block."""
    with TemporaryDirectory(prefix="portolan-duckdb-") as spill_directory:
        restrictions = {"enable_external_access": "false", "autoload_known_extensions": "false"}
        limits = {"temp_directory": spill_directory, "memory_limit": _MEMORY_LIMIT}
        connection = duckdb.connect(":memory:", config={**restrictions, **limits})
        try:
            yield connection
        finally:
            connection.close()


def splink_api(connection: duckdb.DuckDBPyConnection) -> DuckDBAPI:
    """Return Splink's interface to a database; it logs errors only."""
    logging.getLogger("splink").setLevel(logging.ERROR)
    return DuckDBAPI(connection)


def run_steps(
    context: StageContext, connection: duckdb.DuckDBPyConnection, steps: Sequence[Step[ResultT]]
) -> list[ResultT]:
    """Run steps one after the other; return their results.

    Raises:
        RunCancelled: The run must end; no step is running any more.
    """
    results = []
    with ThreadPoolExecutor(1, "duckdb") as thread:
        for number, step in enumerate(steps):
            future = thread.submit(step, connection)
            try:
                while not wait([future], _POLL_S).done:
                    context.progress(number, len(steps))
            finally:
                _stop(future, connection)
            results.append(future.result())
    context.progress(len(steps), len(steps))
    return results


def _stop(future: Future[ResultT], connection: duckdb.DuckDBPyConnection) -> None:
    while not future.done():
        # Repeated: an interruption between two queries has no effect.
        connection.interrupt()
        wait([future], _POLL_S)
