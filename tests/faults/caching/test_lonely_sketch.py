"""A sketch in memory does not hear of what other replicas write: there must be no other."""

from __future__ import annotations

import pytest

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.replicas import NotAlone, Presence
from mediator.stores.port import SystemConfig
from tests.faults.service import Service
from tests.process.service import scratch_catalogue

REMEDY = "PORTOLAN_SKETCH=redis"


@pytest.mark.parametrize(("first", "second"), [("memory", "off"), ("off", "memory")])
async def test_the_second_replica_does_not_start_and_says_what_to_do(
    postgresql_config: SystemConfig, first: str, second: str
) -> None:
    async with (
        scratch_catalogue(postgresql_config) as url,
        Service.on([], url, sketch=first).running() as running,
    ):
        other = Service.on([], url, sketch=second)
        with pytest.raises(AssertionError, match="ended at its start"):
            await other.start()
        told = " ".join("".join(other.output).split())
        assert "Another replica serves this installation" in told
        assert REMEDY in told
        await running.kill()
        async with other.running():  # the place of who was killed is free
            pass


async def test_who_shares_may_be_many_and_who_is_alone_waits_for_all_to_go(
    postgresql_config: SystemConfig,
) -> None:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        one, two = Presence(catalogue, alone=False), Presence(catalogue, alone=False)
        lonely = Presence(catalogue, alone=True)
        await one.hold()
        await two.hold()
        await one.close()
        with pytest.raises(NotAlone):
            await lonely.hold()
        await two.close()
        await lonely.hold()
        await lonely.hold()
        with pytest.raises(NotAlone):
            await one.hold()
        await lonely.close()
        await catalogue.close()


async def test_a_place_is_claimed_anew_when_its_connection_broke(
    postgresql_config: SystemConfig,
) -> None:
    async with scratch_catalogue(postgresql_config) as url:
        catalogue = Catalogue(url)
        lonely, other = Presence(catalogue, alone=True), Presence(catalogue, alone=False)
        await lonely.hold()
        session = lonely.session
        assert session is not None
        await session.invalidate()
        await lonely.hold()
        with pytest.raises(NotAlone):
            await other.hold()
        await lonely.close()
        await catalogue.close()
