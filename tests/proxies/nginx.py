"""A real nginx with the shipped configuration, before any origin."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.harness.proxy_process import program, running, scratch, until_it_answers
from sketch.proxies import shipped

PURGE_TOKEN = "the-purge-token"
PURGE_MODULE = Path("/usr/lib/nginx/modules/ngx_http_cache_purge_module.so")

CONF = """
load_module {module};
daemon off;
{user}
worker_processes 1;
pid {directory}/pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    uwsgi_temp_path {directory}/uwsgi;
    proxy_cache_path {directory}/cache keys_zone=portolan:1m use_temp_path=off;
    upstream portolan {{ server {origin}; }}
    map $http_authorization $portolan_purger {{
        default 0;
        "Bearer {token}" 1;
    }}
    include {shipped}/portolan-http.conf;
    server {{
        listen {listen};
        include {shipped}/portolan-server.conf;
        include {shipped}/portolan-purge.conf;
    }}
}}
"""


@dataclass
class Nginx:
    """A running nginx.

    Attributes:
        url: Where it listens.
        token: Authorises purges.
        cache: The directory of its copies, which survive a restart.
    """

    url: str
    token: str
    cache: Path
    _start: AsyncExitStack
    _command: tuple[str, ...]
    _listener: socket.socket
    _log: Path

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        descriptor = self._listener.fileno()
        env = {"NGINX": f"{descriptor};"}
        process = await self._start.enter_async_context(
            running(*self._command, log=self._log, env=env, pass_fds=(descriptor,))
        )
        await until_it_answers(self.url, process, self._log)

    async def restart(self) -> None:
        """Restart it at the same address, with its cached copies."""
        await self._start.aclose()
        await self.start()


@asynccontextmanager
async def nginx(origin_url: str, *, token: str = PURGE_TOKEN) -> AsyncIterator[Nginx]:
    """Start nginx before an origin, on a port that the kernel picks.

    nginx cannot report its port, so it receives a listening socket, as in its own binary upgrade.
    """
    with scratch("nginx") as directory, socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        conf = directory / "nginx.conf"
        conf.write_text(_conf(directory, urlsplit(origin_url).netloc, f"{host}:{port}", token))
        command = (program("nginx"), "-p", str(directory), "-c", str(conf), "-e", "stderr")
        async with AsyncExitStack() as start:
            server = Nginx(
                f"http://{host}:{port}", token, directory / "cache",
                start, command, listener, directory / "log",
            )  # fmt: skip
            await server.start()
            yield server


def _conf(directory: Path, origin: str, listen: str, token: str) -> str:
    return CONF.format(
        module=PURGE_MODULE,
        # Workers of a root master would give up their rights to the scratch directory.
        user="user root;" if os.geteuid() == 0 else "",
        directory=directory,
        origin=origin,
        token=token,
        shipped=shipped("nginx"),
        listen=listen,
    )
