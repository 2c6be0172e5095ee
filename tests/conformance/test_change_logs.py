"""Change logs of real stores: the order of positions, and large pages."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.kinds import make_store
from mediator.stores.port import Fragment, LogPage, StoreUnavailable, SystemConfig
from tests.conformance.real_stores import isolated_postgres, opened


@pytest.fixture(params=["redis", "postgresql"])
async def subject(
    request: pytest.FixtureRequest, config_of: Mapping[str, SystemConfig]
) -> AsyncIterator[ScratchClass]:
    """A class in a store whose logs hold no other changes."""
    config = replace(
        config_of[request.param], namespace=f"log{uuid.uuid4().hex[:10]}", deadline_s=30.0
    )
    async with (opened if config.kind == "redis" else isolated_postgres)(config) as store:
        scratch = Scratch(store)
        yield await scratch.subject(Field("n", FieldType.INTEGER), Field("doc", FieldType.DOCUMENT))
        await scratch.clear()


async def page_of(
    subject: ScratchClass, log: str, after: str | None = None, limit: int = 1_000
) -> LogPage:
    def resolve(_: str, class_name: str) -> Fragment | None:
        return subject.fragment if class_name == subject.fragment.class_name else None

    store: Any = subject.store
    page: LogPage = await store.changes(log, after, limit, resolve)
    return page


async def test_positions_are_text_in_their_order(subject: ScratchClass) -> None:
    store: Any = subject.store
    await subject.apply_all([subject.creation(f"o{n}", {"n": 0}) for n in range(40)])
    for log in store.logs():
        entries = (await page_of(subject, log)).entries
        positions = [entry.position for entry in entries]
        assert positions == sorted(set(positions))
        assert len({len(p) for p in positions}) <= 1
        assert await store.oldest(log) == (positions[0] if positions else None)


async def test_a_page_of_large_entries_ends_before_its_limit(subject: ScratchClass) -> None:
    """A relay holds such a page in memory, along with the pages of other logs."""
    store: Any = subject.store
    for _ in range(14):  # each with a before image, also of one megabyte
        await subject.replace("x", {"doc": {"a": "x" * 2**20}})
    sizes, versions, is_last, after = [], [], False, None
    [log] = [log for log in store.logs() if (await page_of(subject, log)).entries]
    while not is_last:
        page = await page_of(subject, log, after)
        sizes.append(sum(entry.size for entry in page.entries))
        versions += [entry.change.version for entry in page.entries if entry.change is not None]
        after, is_last = page.entries[-1].position, page.is_last
    assert len(sizes) > 1
    assert max(sizes) < 2**24 + 2**22 + 2**21
    assert len(versions) == 14


async def test_a_log_of_an_unreachable_server_is_unavailable(redis_config: SystemConfig) -> None:
    unreachable = replace(redis_config, url="redis://127.0.0.1:1/0", deadline_s=1.0)
    store: Any = make_store(unreachable)
    with pytest.raises(StoreUnavailable):
        await store.changes(store.logs()[0], None, 1, lambda *_: None)
