"""`portolan admission`: rules are checked, set, tried out and shown from the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.process.commands.shop import Shop

RULES = """\
SET timer = 1
-- sheds what matters least
ON EVENT Timer e IF requestRate() > 1000000 THEN refuseBelow(5, 10)
"""


@pytest.fixture
async def lasting(opened: Shop, tmp_path: Path) -> AsyncIterator[Shop]:
    """A shop that removes the rules at the end, as other tests share the service."""
    yield opened
    empty = tmp_path / "empty.cadl"
    empty.write_text("")
    await opened.run("admission", "put", str(empty))


async def test_rules_from_their_check_to_their_log(lasting: Shop, tmp_path: Path) -> None:
    file, wrong = tmp_path / "rules.cadl", tmp_path / "wrong.cadl"
    file.write_text(RULES)
    wrong.write_text(RULES.replace("refuseBelow", "refuseBelo"))
    refused = await lasting.call("admission", "put", str(wrong))
    assert refused.exit_code == 1
    assert "line 3, column 50: there is no action refuseBelo" in refused.stderr.replace("\n", " ")
    preview = await lasting.run("admission", "put", str(file), "--dry-run")
    assert "1 rules could be put in force." in preview.stderr
    version = orjson.loads((await lasting.run("admission", "show", "--json")).stdout)["version"]
    await lasting.run("admission", "put", str(file), "--if-version", str(version))
    assert (await lasting.run("admission", "show")).stdout == RULES
    conflict = await lasting.call("admission", "put", str(file), "--if-version", str(version))
    assert conflict.exit_code == 1
    events = tmp_path / "events.yaml"
    events.write_text("events: [event: Timer]\nsnapshot: {figures: {requestRate: 2000000}}\n")
    decisions = await lasting.run("admission", "dry-run", str(events), "--rules", str(file))
    values = "requestRate(): 2e+06, requestRate() > 1000000: yes"
    assert decisions.lines == [f"rule 1 (line 3) on Timer: refuseBelow(5, 10)  [{values}]"]
    assert "does not fire" not in (await lasting.run("admission", "log")).stdout
