"""A real Varnish with the shipped VCL, before any origin."""

from __future__ import annotations

import asyncio
import secrets
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from benchmarks.harness.proxy_process import (
    check_alive,
    program,
    running,
    scratch,
    until_it_answers,
)
from sketch.proxies import shipped

__all__ = ["Tags", "Varnish", "varnish"]

Tags = Literal["xkey", "ban"]

VCL = """vcl 4.1;
backend origin {{
    .host = "{host}";
    .port = "{port}";
}}
acl portolan_purgers {{
    {purgers}
}}
include "portolan-{tags}.vcl";
include "portolan.vcl";
"""

PARAMETERS = {
    "vcl_path": str(shipped("varnish")),
    "http_gzip_support": "off",
    "default_grace": "0",
    "default_keep": "0",
    "thread_pools": "1",
    "thread_pool_min": "10",
}


@dataclass(frozen=True)
class Varnish:
    """A running Varnish; requests with its token may purge."""

    url: str
    token: str
    directory: Path

    async def admin(self, *command: str) -> str:
        return await _output("varnishadm", "-n", str(self.directory), *command)

    async def asleep(self) -> int:
        counter = ("-1", "-f", "MAIN.busy_sleep")
        return int((await _output("varnishstat", "-n", str(self.directory), *counter)).split()[1])

    async def slept_since(self, before: int) -> bool:
        return await self.asleep() > before

    async def restart(self) -> None:
        """Restart it at the same address: it forgets everything."""
        await self.admin("stop")
        await self.admin("start")


@asynccontextmanager
async def varnish(
    origin_url: str, *, tags: Tags = "xkey", token: str | None = None, purgers: str = '"127.0.0.1";'
) -> AsyncIterator[Varnish]:
    """Start Varnish before an origin, on a port that the kernel picks.

    Args:
        token: The token that purging requires; empty: none is set; None: one is generated.
        purgers: The entries of the access list.
    """
    token = secrets.token_hex(16) if token is None else token
    with scratch("varnish") as directory:
        at = urlsplit(origin_url)
        vcl = directory / "test.vcl"
        vcl.write_text(VCL.format(host=at.hostname, port=at.port, tags=tags, purgers=purgers))
        log, work = directory / "log", directory / "work"
        env = {"PORTOLAN_PURGE_TOKEN": token}
        async with running(*_command(work, vcl), log=log, env=env) as process:
            while not (url := await _address(work)):
                check_alive(process, log)
                await asyncio.sleep(0.02)
            await until_it_answers(url, process, log)
            yield Varnish(url, token, work)


def _command(work: Path, vcl: Path) -> list[str]:
    settings = [word for name, value in PARAMETERS.items() for word in ("-p", f"{name}={value}")]
    # No jail: it requires root, and the users of Debian's package.
    return [
        program("varnishd"), "-F", "-j", "none", "-n", str(work), "-a", "127.0.0.1:0",
        "-f", str(vcl), "-s", "malloc,32m", "-t", "0", *settings,
    ]  # fmt: skip


async def _output(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program(name), *arguments, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    if process.returncode != 0:
        raise ConnectionError((output + errors).decode())
    return output.decode()


async def _address(work: Path) -> str:
    try:
        listening = await _output("varnishadm", "-n", str(work), "debug.listen_address")
    except ConnectionError:
        return ""
    _, host, port = listening.split()
    return f"http://{host}:{port}"
