"""Transactions over three systems: whole or not at all, through crashes and concurrent writes."""

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
from mediator.transactions.model import MAX_READS, MAX_WRITES, ReadSetEntry
from tests.process.service import Service, service, unique
from tests.process.transactions.committing.shop import (
    CLASSES,
    REFUSED,
    SINGLE,
    has_intent,
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
        assert not await has_intent(mediator, shop, name, trio[name].id)
    assert await values(mediator, shop, "pairs", created) == {"title": "new", "hits": 7}
    assert outcomes[3].created
    assert await values(mediator, shop, "pairs", deleted.id) is None
    assert outcomes[4].values is None
    for id_ in (created, deleted.id):
        assert not await has_intent(mediator, shop, "pairs", id_)


@pytest.mark.parametrize("changed", SINGLE)
async def test_a_changed_read_aborts_all(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], changed: str
) -> None:
    await mediator.mediator.data.write(update(shop, changed, trio[changed].id, n=5))
    others = [name for name in SINGLE if name != changed]
    request = transaction(
        shop,
        *(update(shop, name, trio[name].id, n=1) for name in others),
        reads=[seen(name, outcome) for name, outcome in trio.items()],
    )
    with pytest.raises(TransactionAborted) as aborted:
        await run(mediator, request)
    assert aborted.value.extra == {"changed": [{"class": changed, "id": trio[changed].id}]}
    for name in others:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 0}
        assert not await has_intent(mediator, shop, name, trio[name].id)


@pytest.mark.parametrize(
    ("written", "read", "looks"),
    [
        ("users", ["carts", "notes"], 0),
        ("users", [f"nobody{n}" for n in range(MAX_READS - 1)], 1),
        ("nobody", [f"nobody{n}" for n in range(MAX_READS)], 1),
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
        if database == shop:  # recovery may look at what other tests have left
            looked.append(class_name)
        return await look(database, class_name)

    monkeypatch.setattr(data, "route", counted)
    new = Create(shop, written, unique(), unique(), values={"n": 1})
    request = transaction(shop, new, reads=[ReadSetEntry(name, unique(), None) for name in read])
    refusal = {"users": TransactionAborted, "nobody": NotFound}[written]
    with pytest.raises(refusal) if looks else nullcontext():
        await run(mediator, request)
    assert len(looked) == looks


async def test_a_class_created_by_another_replica_is_found(
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
        absent, created = unique(), unique()
        request = transaction(
            shop,
            Create(shop, name, created, unique(), values={"n": 1}),
            reads=[ReadSetEntry(name, absent, None)],
        )
        await run(mediator, request)
        await mediator.create(shop, name, absent, n=1)
        again = replace(request, writes=(Delete(shop, name, created, unique()),))
        with pytest.raises(TransactionAborted):
            await run(mediator, again)
        await mediator.mediator.data.write(Delete(shop, name, absent, unique()))
        await run(mediator, again)
        gone = transaction(
            shop, reads=[ReadSetEntry(name, created, None), ReadSetEntry(name, absent, None)]
        )
        assert await run(mediator, gone) == []


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("class_name", SINGLE)
async def test_one_refused_operation_aborts_the_transaction(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], what: str, class_name: str
) -> None:
    make, error = REFUSED[what]
    for name in SINGLE:
        await mediator.mediator.data.write(update(shop, name, trio[name].id, n=1))
    others = [name for name in SINGLE if name != class_name]
    writes = [update(shop, name, trio[name].id, n=9) for name in others]
    with pytest.raises(error):
        await run(mediator, transaction(shop, *writes, make(shop, class_name, trio[class_name].id)))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
        assert not await has_intent(mediator, shop, name, trio[name].id)


async def test_the_size_of_a_transaction_is_bounded(mediator: Service, shop: str) -> None:
    many = [update(shop, "users", unique(), n=1) for _ in range(MAX_WRITES + 1)]
    reads = [ReadSetEntry("users", unique(), None) for _ in range(MAX_READS + 1)]
    for request in (
        transaction(shop, *many),
        transaction(shop, reads=reads),
        transaction(shop, many[0], many[0]),
    ):
        with pytest.raises(Invalid):
            await run(mediator, request)


async def test_an_update_creates_a_missing_fragment(mediator: Service, shop: str) -> None:
    object_ = await mediator.create(shop, "pairs", unique(), title="t")
    route = await mediator.mediator.data.route(shop, "pairs")
    fragment = route.fragment_of["hits"]
    store = mediator.mediator.systems.get(fragment.system).store
    await store.drop(fragment)
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
    request = transaction(shop, *keyed, fingerprint="f")
    first = await run(mediator, request)
    again = await run(mediator, request)
    assert [o.versions for o in again] == [o.versions for o in first]
    assert [o.values for o in again] == [o.values for o in first] == [{"n": 1}] * 3
    assert all(outcome.replayed for outcome in again)
    with pytest.raises(IdempotencyReused):
        await run(mediator, replace(request, fingerprint="g"))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
