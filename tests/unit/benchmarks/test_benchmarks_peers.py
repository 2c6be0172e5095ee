"""The harness of the comparison with peers: checked replies, CPU time and processes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import psutil
import pytest

from app.commands.demo.failed import Failed
from benchmarks.harness.peers.candidate import processor_s
from benchmarks.harness.peers.operations import (
    PAGE,
    Operation,
    check_reply,
    some_object,
)
from benchmarks.harness.peers.peer import (
    ENVIRONMENTS,
    Peer,
    Running,
    absence_reason,
    absent_result,
    free_port,
    installed,
    serving,
)
from benchmarks.harness.runner import available
from benchmarks.harness.wire import Reply

OBJECT = orjson.dumps(some_object(1))
ITEMS = b"[" + b",".join([OBJECT] * PAGE) + b"]"
GRAPHQL_ERROR = b'"errors":['
BUSY = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_the_comparison_with_peers_is_a_benchmark() -> None:
    assert available()["peers"].startswith("Peers")


def test_the_documented_versions_are_pinned() -> None:
    page = (Path(__file__).parents[3] / "docs" / "dependencies.md").read_text()
    peers = {
        "PostGraphile": ("postgraphile", "postgraphile"),
        "Platformatic DB": ("platformatic", "@platformatic/db"),
    }
    for name, (folder, package) in peers.items():
        lock = orjson.loads((ENVIRONMENTS / folder / "package-lock.json").read_bytes())
        pinned = lock["packages"][f"node_modules/{package}"]["version"]
        assert lock["packages"][""]["dependencies"] == {package: pinned}
        assert f"{name} {pinned}" in page
    (eve,) = re.findall(
        r"^eve==(\S+)", (ENVIRONMENTS / "eve" / "requirements.lock").read_text(), re.MULTILINE
    )
    assert f"Eve {eve}" in page


def test_objects_have_the_documented_size() -> None:
    assert 290 < len(OBJECT) < 310
    assert len(some_object(1)) == 5


@pytest.mark.parametrize(
    ("operation", "status", "content", "error"),
    [
        ("GET", 200, OBJECT, None),
        ("GET", 200, b'{"data":{"article":' + OBJECT + b"}}", GRAPHQL_ERROR),
        ("PUT", 204, b"", None),
        ("PUT", 201, b"{}", None),
        ("atomic update", 200, b'{"HINCRBY":1}', b"[false,"),
        ("filtered page", 200, ITEMS, None),
    ],
)
def test_a_successful_reply_is_accepted(
    operation: Operation, status: int, content: bytes, error: bytes | None
) -> None:
    check_reply(operation, Reply(status, [], content), error)


@pytest.mark.parametrize(
    ("operation", "status", "content", "error"),
    [
        ("GET", 404, OBJECT, None),
        ("GET", 304, OBJECT, None),
        ("GET", 200, b"{}", None),
        ("GET", 200, b'{"GET":null}', b"[false,"),
        ("PUT", 412, b"{}", None),
        ("PUT", 302, b"", None),
        ("PUT", 200, b'{"errors":[{"message":"no"}],"data":null}', GRAPHQL_ERROR),
        ("atomic update", 200, b'{"HINCRBY":[false,"WRONGTYPE"]}', b"[false,"),
        ("filtered page", 200, b"[" + OBJECT + b"]", None),
        ("filtered page", 200, b"[]", None),
    ],
)
def test_any_other_reply_fails(
    operation: Operation, status: int, content: bytes, error: bytes | None
) -> None:
    with pytest.raises(Failed, match=operation):
        check_reply(operation, Reply(status, [], content), error)


def test_the_cpu_time_of_all_processes_of_a_service_is_counted() -> None:
    """The parent waits; its child uses the CPU."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        parent_times = psutil.Process(parent.pid).cpu_times()
        children_s = processor_s(parent.pid) - parent_times.user - parent_times.system
        parent.communicate(b"\n")
    assert round(children_s, 2) >= 0.19  # floats represent whole ticks inexactly


async def test_a_peer_is_stopped_even_if_the_measurement_fails(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    pids: list[int] = []

    async def fail() -> None:
        async with serving(command, port, tmp_path / "log") as address:
            pids.append(address.pid)
            assert psutil.pid_exists(address.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert not psutil.pid_exists(*pids)


async def test_a_peer_that_does_not_start_misses_its_bar_with_a_reason(tmp_path: Path) -> None:
    @asynccontextmanager
    async def serve(url: str) -> AsyncIterator[Running]:
        command = [sys.executable, "-c", f"raise SystemExit('Reading...\\nno {url}')"]
        async with serving(command, free_port(), tmp_path / "log") as address:
            yield Running(address, "1")

    peer = Peer("Anything", "redis", {"GET": [], "PUT": []}, serve)
    with pytest.raises(Failed) as error:
        async with peer.serve("licence"):
            pass
    assert absence_reason(peer, error.value) == "Anything is not measured: no licence"
    assert absence_reason(peer, Failed("")) == "Anything is not measured: it wrote nothing"
    result = absent_result(peer)
    assert (result.figure, result.bar, result.met) == (0, 2, False)
    with pytest.raises(Failed, match="cannot run redis"):
        async with peer.running({}):
            pass
    with pytest.raises(Failed, match="make peers"):
        installed(tmp_path / "nothing")
