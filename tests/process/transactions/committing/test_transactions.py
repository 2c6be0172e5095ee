"""Transactions over three systems: whole or not at all, whoever dies and whoever else writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from mediator.base.errors import (
    IdempotencyReused,
    Invalid,
    NotFound,
    TransactionAborted,
)
from mediator.model.operations import (
    Create,
    Delete,
    Outcome,
    ReadModifyWrite,
    Update,
)
from mediator.model.operators import Operator, OperatorCall
from mediator.stores.port import SystemConfig
from mediator.transactions.model import MOST_READS, MOST_WRITES, ReadSetEntry
from tests.process.service import Service, service, unique
from tests.process.transactions.committing.shop import (
    CLASSES,
    REFUSED,
    SINGLE,
    is_marked,
    run,
    seen,
    transaction,
    update,
    values,
)


async def test_all_is_done_on_every_system(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    created, deleted = unique(), await mediator.create(shop, "pairs", unique(), title="t", hits=1)
    outcomes = await run(
        mediator,
        transaction(
            shop,
            update(shop, "users", trio["users"].id, n=1),
            Update(
                shop,
                "carts",
                trio["carts"].id,
                unique(),
                operators=(OperatorCall("n", Operator.INC, 2),),
            ),
            ReadModifyWrite(
                shop, "notes", trio["notes"].id, unique(), compute=lambda o: {"n": o["n"] + 3}
            ),
            Create(shop, "pairs", created, unique(), values={"title": "new", "hits": 7}),
            Delete(shop, "pairs", deleted.id, unique()),
            reads=[seen(name, outcome) for name, outcome in trio.items()],
        ),
    )
    for number, name in enumerate(SINGLE, 1):
        now = await mediator.get(shop, name, trio[name].id)
        assert now.values == {"n": number}
        assert outcomes[number - 1].versions == now.versions
        assert not await is_marked(mediator, shop, name, trio[name].id)
    assert await values(mediator, shop, "pairs", created) == {"title": "new", "hits": 7}
    assert outcomes[3].created
    assert await values(mediator, shop, "pairs", deleted.id) is None
    assert outcomes[4].values is None
    for id_ in (created, deleted.id):
        assert not await is_marked(mediator, shop, "pairs", id_)


@pytest.mark.parametrize("changed", SINGLE)
async def test_a_changed_read_aborts_all(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], changed: str
) -> None:
    await mediator.mediator.data.write(update(shop, changed, trio[changed].id, n=5))
    others = [name for name in SINGLE if name != changed]
    wanted = transaction(
        shop,
        *(update(shop, name, trio[name].id, n=1) for name in others),
        reads=[seen(name, outcome) for name, outcome in trio.items()],
    )
    with pytest.raises(TransactionAborted) as aborted:
        await run(mediator, wanted)
    assert aborted.value.extra == {"changed": [{"class": changed, "id": trio[changed].id}]}
    for name in others:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 0}
        assert not await is_marked(mediator, shop, name, trio[name].id)


@pytest.mark.parametrize(
    ("written", "read", "looks"),
    [
        ("users", ["carts", "notes"], 0),
        ("users", [f"nobody{n}" for n in range(MOST_READS - 1)], 1),
        ("nobody", [f"nobody{n}" for n in range(MOST_READS)], 1),
    ],
    ids=["all known", "reads unknown", "all unknown"],
)
async def test_classes_that_are_unknown_cost_one_look(
    mediator: Service,
    shop: str,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    read: list[str],
    looks: int,
) -> None:
    data, looked = mediator.mediator.data, []
    look = data.route

    async def counted(database: str, class_name: str) -> Any:
        looked.append(class_name)
        return await look(database, class_name)

    monkeypatch.setattr(data, "route", counted)
    new = Create(shop, written, unique(), unique(), values={"n": 1})
    wanted = transaction(shop, new, reads=[ReadSetEntry(name, unique(), None) for name in read])
    refusal = {"users": TransactionAborted, "nobody": NotFound}[written]
    with pytest.raises(refusal) if looks else nullcontext():
        await run(mediator, wanted)
    assert len(looked) == looks


async def test_a_class_that_another_replica_made_is_found(
    mediator: Service, shop: str, system_configs: Sequence[SystemConfig]
) -> None:
    async with service(system_configs, mediator.catalogue_url) as replica:
        more = {**CLASSES, "more": CLASSES["notes"], "most": CLASSES["carts"]}
        await replica.mediator.control.set_schema(shop, {"classes": more})
    new = Create(shop, "users", unique(), unique(), values={"n": 1})
    reads = [ReadSetEntry(name, unique(), None) for name in ("more", "most")]
    assert len(await run(mediator, transaction(shop, new, reads=reads))) == 1


async def test_absence_can_be_read(mediator: Service, shop: str) -> None:
    for name in SINGLE:
        absent, made = unique(), unique()
        wanted = transaction(
            shop,
            Create(shop, name, made, unique(), values={"n": 1}),
            reads=[ReadSetEntry(name, absent, None)],
        )
        await run(mediator, wanted)
        await mediator.create(shop, name, absent, n=1)
        again = replace(wanted, writes=(Delete(shop, name, made, unique()),))
        with pytest.raises(TransactionAborted):
            await run(mediator, again)
        await mediator.mediator.data.write(Delete(shop, name, absent, unique()))
        await run(mediator, again)
        gone = transaction(
            shop, reads=[ReadSetEntry(name, made, None), ReadSetEntry(name, absent, None)]
        )
        assert await run(mediator, gone) == []


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("place", SINGLE)
async def test_what_one_operation_refuses_none_does(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], what: str, place: str
) -> None:
    make, error = REFUSED[what]
    for name in SINGLE:
        await mediator.mediator.data.write(update(shop, name, trio[name].id, n=1))
    others = [name for name in SINGLE if name != place]
    writes = [update(shop, name, trio[name].id, n=9) for name in others]
    with pytest.raises(error):
        await run(mediator, transaction(shop, *writes, make(shop, place, trio[place].id)))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
        assert not await is_marked(mediator, shop, name, trio[name].id)


async def test_its_size_is_bounded(mediator: Service, shop: str) -> None:
    many = [update(shop, "users", unique(), n=1) for _ in range(MOST_WRITES + 1)]
    reads = [ReadSetEntry("users", unique(), None) for _ in range(MOST_READS + 1)]
    for wanted in (
        transaction(shop, *many),
        transaction(shop, reads=reads),
        transaction(shop, many[0], many[0]),
    ):
        with pytest.raises(Invalid):
            await run(mediator, wanted)


async def test_an_update_adds_a_part_that_is_lacking(mediator: Service, shop: str) -> None:
    object_ = await mediator.create(shop, "pairs", unique(), title="t")
    route = await mediator.mediator.data.route(shop, "pairs")
    part = route.fragment_of["hits"]
    store = mediator.mediator.systems.get(part.system).store
    await store.drop(part)
    operators = (OperatorCall("hits", Operator.INC, 4),)
    await run(
        mediator,
        transaction(
            shop,
            Update(shop, "pairs", object_.id, unique(), values={"note": "n"}, operators=operators),
        ),
    )
    assert await values(mediator, shop, "pairs", object_.id) == {
        "title": "t",
        "note": "n",
        "hits": 4,
    }


async def test_a_retry_is_answered_and_not_repeated(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    operators = (OperatorCall("n", Operator.INC, 1),)
    writes = [Update(shop, n, trio[n].id, unique(), operators=operators) for n in SINGLE]
    keyed = [replace(write, fingerprint="f") for write in writes]
    wanted = transaction(shop, *keyed, fingerprint="f")
    first = await run(mediator, wanted)
    again = await run(mediator, wanted)
    assert [o.versions for o in again] == [o.versions for o in first]
    assert [o.values for o in again] == [o.values for o in first] == [{"n": 1}] * 3
    assert all(outcome.replayed for outcome in again)
    with pytest.raises(IdempotencyReused):
        await run(mediator, replace(wanted, fingerprint="g"))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
