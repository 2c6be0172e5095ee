"""`portolan worker` in a separate process, for a service on embedded servers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.commands.demo.failed import Failed

__all__ = ["joined_worker"]


@asynccontextmanager
async def joined_worker(data_dir: Path) -> AsyncIterator[None]:
    """Run a worker for the service whose data are in a directory, while the block runs.

    Raises:
        Failed: It did not start.
    """
    command = (sys.executable, "-c", "from app.cli import main; main()", "worker")
    process = await asyncio.create_subprocess_exec(
        *(*command, "--embedded", "--data-dir", str(data_dir)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        # Its first line reports that it waits for runs.
        if not await process.stdout.readline():
            raise Failed("the worker did not start")
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
