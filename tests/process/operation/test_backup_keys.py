"""Tenants and API keys in a backup: added where there are none, and else only if that is stated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process.operation.backups import Start, back_up, done, filled, restore
from tests.process.service import Service


@dataclass(frozen=True, slots=True)
class Revoked:
    """A backup, and an installation that has had a key revoked and a tenant removed since."""

    own: Service
    directory: Path
    kept: str
    revoked: str


@pytest.fixture
async def since(installation: Start, tmp_path: Path) -> Revoked:
    own = await installation()
    database = await filled(own, 2)
    tenancy = own.mediator.tenancy
    for tenant in ("club", "former"):
        await tenancy.put_tenant(tenant, {})
    await tenancy.own("club", database)
    kept, revoked = [(await tenancy.create_key("club", who, ["read"]))["id"] for who in ("a", "b")]
    await back_up(own, tmp_path / "b")
    await tenancy.revoke("club", revoked)
    await tenancy.remove_tenant("former")
    return Revoked(own, tmp_path / "b", kept, revoked)


async def keys_of(own: Service) -> set[str]:
    return {key["id"] for key in await own.mediator.tenancy.keys("club")}


async def tenants_of(own: Service) -> set[str]:
    return {tenant["name"] for tenant in await own.mediator.tenancy.tenants()}


async def test_what_was_revoked_or_removed_since_stays_so(since: Revoked) -> None:
    for dry_run in (True, False):
        report = await restore(since.own, since.directory, force=True, dry_run=dry_run)
        assert report.left_out == 2
    assert await keys_of(since.own) == {since.kept}
    assert await tenants_of(since.own) == {"club"}


async def test_it_comes_back_if_that_is_stated(since: Revoked) -> None:
    for dry_run in (True, False):
        report = await restore(since.own, since.directory, force=True, dry_run=dry_run, keys=True)
        assert report.left_out == 0
    assert await keys_of(since.own) == {since.kept, since.revoked}
    assert await tenants_of(since.own) == {"club", "former"}


async def test_a_single_key_is_enough_to_leave_others_out(
    since: Revoked, installation: Start
) -> None:
    """It may be the last one of many that were revoked."""
    target = await installation()
    created = await target.mediator.tenancy.create_key("operator", "root", ["admin"])
    report = await restore(target, since.directory)
    assert report.left_out == 5
    assert await tenants_of(target) == set()
    [key] = await target.mediator.tenancy.keys("operator")
    assert key["id"] == created["id"]


async def test_a_new_installation_has_all_keys_of_the_backup(
    since: Revoked, installation: Start
) -> None:
    target = await installation()
    assert (await restore(target, since.directory, dry_run=True)).left_out == 0
    assert (await restore(target, since.directory)).left_out == 0
    assert await keys_of(target) == {since.kept, since.revoked}


async def test_the_command_says_how_many_are_left_out_and_how_to_have_them(since: Revoked) -> None:
    words = ("restore", str(since.directory), "--force")
    for more in (["--dry-run"], []):
        output = " ".join((await done(since.own, *words, *more)).split())
        assert "keys left out: 2;" in output
        assert "--keys adds them" in output
    assert "left out" not in await done(since.own, *words, "--keys")
    assert since.revoked in await keys_of(since.own)
