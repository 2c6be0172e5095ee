"""The examples in the Python client's documentation run as printed."""

from __future__ import annotations

import asyncio
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from portolan_client import AsyncAdminClient
from tests.faults.service import Service
from tests.process.clients.both import NEWS

ROOT = Path(__file__).parents[3]


def run(page: Path, service: Service) -> list[str]:
    """Run the examples of a page, one after the other; return the lines that they print."""
    text = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    for port, address in (("8080", service.data), ("8081", service.admin)):
        text = text.replace(f"http://127.0.0.1:{port}", address)
    output = StringIO()
    with redirect_stdout(output):
        exec(compile(text, str(page), "exec"), {})
    return output.getvalue().splitlines()


async def test_the_readme_sells_a_lamp_in_five_minutes(started: Service) -> None:
    lines = await asyncio.to_thread(run, ROOT / "clients" / "python" / "README.md", started)
    assert lines[0] in {"redis", "postgres", "mongo"}
    assert lines[1:5] == [
        "somebody has changed the lamp",
        "Lamp 35",
        "operator-refused",
        "['Ada']",
    ]
    assert re.fullmatch(r"create \S+ \S+", lines[5])


async def test_the_page_counts_a_view(started: Service) -> None:
    async with AsyncAdminClient(started.admin) as admin:
        await admin.put_schema("news", NEWS)
    page = ROOT / "docs" / "python-client.md"
    assert await asyncio.to_thread(run, page, started) == ["New 1"]
