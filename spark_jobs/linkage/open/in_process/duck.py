"""A DuckDB in memory for one stage, which can be interrupted.

It sees the tables that are registered, and neither files nor the network. Each step runs
in a thread of its own while the stage checks whether the run is to end. An interruption between two
queries hits neither, so it is repeated until the work has ended.
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

_LOOK_S: Final = 0.2
_MEMORY: Final = "50%"  # the other half is for Spark

ResultT = TypeVar("ResultT")
Step: TypeAlias = Callable[[duckdb.DuckDBPyConnection], ResultT]


@contextmanager
def in_memory_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that is deleted when the block ends."""
    with TemporaryDirectory(prefix="portolan-duckdb-") as spilled:
        closed = {"enable_external_access": "false", "autoload_known_extensions": "false"}
        limits = {"temp_directory": spilled, "memory_limit": _MEMORY}
        connection = duckdb.connect(":memory:", config={**closed, **limits})
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
        RunCancelled: The run is to end; nothing is under way any more.
    """
    results = []
    with ThreadPoolExecutor(1, "duckdb") as thread:
        for number, step in enumerate(steps):
            future = thread.submit(step, connection)
            try:
                while not wait([future], _LOOK_S).done:
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
        wait([future], _LOOK_S)
