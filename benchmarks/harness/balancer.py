"""A real nginx that balances requests over replicas, with keep-alive connections."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.harness.proxy_process import program, running, scratch, until_it_answers

__all__ = ["balancer"]

_CONF = """
daemon off;
{user}
worker_processes 1;
pid {directory}/pid;
error_log stderr warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    uwsgi_temp_path {directory}/uwsgi;
    upstream replicas {{
        {servers}
        keepalive 16;
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://replicas;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""


@asynccontextmanager
async def balancer(replicas: Sequence[str]) -> AsyncIterator[str]:
    """Run nginx before replicas, whose state it infers from requests; yield its address."""
    with scratch("balancer") as directory, socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        conf = directory / "nginx.conf"
        conf.write_text(_conf(directory, replicas, f"{host}:{port}"))
        descriptor, log = listening.fileno(), directory / "log"
        command = (program("nginx"), "-p", str(directory), "-c", str(conf), "-e", "stderr")
        # nginx cannot report its port, so it inherits a listening socket.
        env = {"NGINX": f"{descriptor};"}
        async with running(*command, log=log, env=env, pass_fds=(descriptor,)) as process:
            url = f"http://{host}:{port}"
            await until_it_answers(url, process, log)
            yield url


def _conf(directory: Path, replicas: Sequence[str], listen: str) -> str:
    # Workers of a root master would give up their rights to the scratch directory.
    user = "user root;" if os.geteuid() == 0 else ""
    servers = "\n        ".join(f"server {urlsplit(url).netloc} max_fails=0;" for url in replicas)
    return _CONF.format(user=user, directory=directory, servers=servers, listen=listen)
