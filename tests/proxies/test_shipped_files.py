"""The shipped examples can be used unchanged."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

from benchmarks.harness.proxy_process import program
from sketch.proxies import shipped

NGINX = """
pid {own}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {own}/body;
    proxy_temp_path {own}/proxy;
    fastcgi_temp_path {own}/fastcgi;
    scgi_temp_path {own}/scgi;
    uwsgi_temp_path {own}/uwsgi;
    include {own}/example.conf;
}}
"""


async def output(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program(name), *arguments, stdout=PIPE, stderr=STDOUT
    )
    text, _ = await process.communicate()
    assert process.returncode == 0, text.decode()
    return text.decode()


async def test_varnish_compiles_its_example(tmp_path: Path) -> None:
    directory = shipped("varnish")
    parameters = ("-j", "none", "-p", f"vcl_path={directory}", "-n", str(tmp_path))
    await output("varnishd", "-C", *parameters, "-f", str(directory / "example.vcl"))


async def test_nginx_accepts_its_example(tmp_path: Path) -> None:
    for file in shipped("nginx").iterdir():
        text = file.read_text().replace("/var/cache/nginx", str(tmp_path))
        (tmp_path / file.name).write_text(text)
    conf = tmp_path / "nginx.conf"
    conf.write_text(NGINX.format(own=tmp_path))
    report = await output("nginx", "-t", "-e", "stderr", "-p", str(tmp_path), "-c", str(conf))
    assert "warn" not in report.replace('the "user" directive', "")
