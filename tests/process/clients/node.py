"""Programs in Node."""

from __future__ import annotations

import asyncio
import os
import shutil

__all__ = ["run_node"]


async def run_node(*arguments: str, **environment: str) -> list[str]:
    """Run Node, and return the lines that it prints."""
    node = shutil.which("node")
    assert node is not None, "Node is required; .ci/run installs it"
    process = await asyncio.create_subprocess_exec(
        *(node, *arguments),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode().splitlines()
