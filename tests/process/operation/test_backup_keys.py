"""Tenants and API keys in a backup: restored where there are none, otherwise only on request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.process.operation.backups import Start, back_up, create_database, restore, run_command
from tests.process.service import Service


@dataclass(frozen=True, slots=True)
class Revoked:
    """A backup, and an installation that has had a key revoked and a tenant removed since."""

    service: Service
    directory: Path
    active: str
    revoked: str


@pytest.fixture
async def since(installation: Start, tmp_path: Path) -> Revoked:
    service = await installation()
    database = await create_database(service, 2)
    tenancy = service.mediator.tenancy
    for tenant in ("club", "former"):
        await tenancy.put_tenant(tenant, {})
    await tenancy.own("club", database)
    active, revoked = [
        (await tenancy.create_key("club", who, ["read"]))["id"] for who in ("a", "b")
    ]
    await back_up(service, tmp_path / "b")
    await tenancy.revoke("club", revoked)
    await tenancy.remove_tenant("former")
    return Revoked(service, tmp_path / "b", active, revoked)


async def keys_of(service: Service) -> set[str]:
    return {key["id"] for key in await service.mediator.tenancy.keys("club")}


async def tenants_of(service: Service) -> set[str]:
    return {tenant["name"] for tenant in await service.mediator.tenancy.tenants()}


async def test_revoked_keys_and_removed_tenants_are_not_restored(since: Revoked) -> None:
    for dry_run in (True, False):
        report = await restore(since.service, since.directory, force=True, dry_run=dry_run)
        assert report.left_out == 2
    assert await keys_of(since.service) == {since.active}
    assert await tenants_of(since.service) == {"club"}


async def test_revoked_keys_and_removed_tenants_are_restored_on_request(since: Revoked) -> None:
    for dry_run in (True, False):
        report = await restore(
            since.service, since.directory, force=True, dry_run=dry_run, keys=True
        )
        assert report.left_out == 0
    assert await keys_of(since.service) == {since.active, since.revoked}
    assert await tenants_of(since.service) == {"club", "former"}


async def test_a_single_key_is_enough_to_leave_others_out(
    since: Revoked, installation: Start
) -> None:
    """The others may have been revoked."""
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
    assert await keys_of(target) == {since.active, since.revoked}


async def test_the_command_says_how_many_are_left_out_and_how_to_have_them(since: Revoked) -> None:
    arguments = ("restore", str(since.directory), "--force")
    for options in (["--dry-run"], []):
        output = " ".join((await run_command(since.service, *arguments, *options)).split())
        assert "keys left out: 2;" in output
        assert "--keys adds them" in output
    assert "left out" not in await run_command(since.service, *arguments, "--keys")
    assert since.revoked in await keys_of(since.service)
