"""Transactions over three systems: atomic, through crashes and concurrent writes."""

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
    read_of,
    run,
    transaction,
    update,
    values,
)


async def test_all_writes_are_done_on_every_system(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    created_id, deleted = (
        unique(),
        await mediator.create(shop, "pairs", unique(), title="t", hits=1),
    )
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
            Create(shop, "pairs", created_id, unique(), values={"title": "new", "hits": 7}),
            Delete(shop, "pairs", deleted.id, unique()),
            reads=[read_of(name, outcome) for name, outcome in trio.items()],
        ),
    )
    for number, name in enumerate(SINGLE, 1):
        current = await mediator.get(shop, name, trio[name].id)
        assert current.values == {"n": number}
        assert outcomes[number - 1].versions == current.versions
        assert not await has_intent(mediator, shop, name, trio[name].id)
    assert await values(mediator, shop, "pairs", created_id) == {"title": "new", "hits": 7}
    assert outcomes[3].created
    assert await values(mediator, shop, "pairs", deleted.id) is None
    assert outcomes[4].values is None
    for id_ in (created_id, deleted.id):
        assert not await has_intent(mediator, shop, "pairs", id_)


@pytest.mark.parametrize("changed", SINGLE)
async def test_a_changed_read_aborts_the_transaction(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], changed: str
) -> None:
    await mediator.mediator.data.write(update(shop, changed, trio[changed].id, n=5))
    other_names = [name for name in SINGLE if name != changed]
    request = transaction(
        shop,
        *(update(shop, name, trio[name].id, n=1) for name in other_names),
        reads=[read_of(name, outcome) for name, outcome in trio.items()],
    )
    with pytest.raises(TransactionAborted) as aborted:
        await run(mediator, request)
    assert aborted.value.extra == {"changed": [{"class": changed, "id": trio[changed].id}]}
    for name in other_names:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 0}
        assert not await has_intent(mediator, shop, name, trio[name].id)


@pytest.mark.parametrize(
    ("written", "read", "lookups"),
    [
        ("users", ["carts", "notes"], 0),
        ("users", [f"nobody{n}" for n in range(MAX_READS - 1)], 1),
        ("nobody", [f"nobody{n}" for n in range(MAX_READS)], 1),
    ],
    ids=["all known", "reads unknown", "all unknown"],
)
async def test_unknown_classes_cost_one_lookup(
    mediator: Service,
    shop: str,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    read: list[str],
    lookups: int,
) -> None:
    data, names = mediator.mediator.data, []
    route = data.route

    async def count_lookup(database: str, class_name: str) -> Any:
        if database == shop:  # recovery can look up classes that other tests left
            names.append(class_name)
        return await route(database, class_name)

    monkeypatch.setattr(data, "route", count_lookup)
    new = Create(shop, written, unique(), unique(), values={"n": 1})
    request = transaction(shop, new, reads=[ReadSetEntry(name, unique(), None) for name in read])
    refusal = {"users": TransactionAborted, "nobody": NotFound}[written]
    with pytest.raises(refusal) if lookups else nullcontext():
        await run(mediator, request)
    assert len(names) == lookups


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
        absent_id, created_id = unique(), unique()
        request = transaction(
            shop,
            Create(shop, name, created_id, unique(), values={"n": 1}),
            reads=[ReadSetEntry(name, absent_id, None)],
        )
        await run(mediator, request)
        await mediator.create(shop, name, absent_id, n=1)
        deletion = replace(request, writes=(Delete(shop, name, created_id, unique()),))
        with pytest.raises(TransactionAborted):
            await run(mediator, deletion)
        await mediator.mediator.data.write(Delete(shop, name, absent_id, unique()))
        await run(mediator, deletion)
        absences = transaction(
            shop, reads=[ReadSetEntry(name, created_id, None), ReadSetEntry(name, absent_id, None)]
        )
        assert await run(mediator, absences) == []


@pytest.mark.parametrize("operation", REFUSED)
@pytest.mark.parametrize("class_name", SINGLE)
async def test_one_refused_operation_aborts_the_transaction(
    mediator: Service, shop: str, trio: Mapping[str, Outcome], operation: str, class_name: str
) -> None:
    make_write, error = REFUSED[operation]
    for name in SINGLE:
        await mediator.mediator.data.write(update(shop, name, trio[name].id, n=1))
    other_names = [name for name in SINGLE if name != class_name]
    writes = [update(shop, name, trio[name].id, n=9) for name in other_names]
    with pytest.raises(error):
        await run(
            mediator, transaction(shop, *writes, make_write(shop, class_name, trio[class_name].id))
        )
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
        assert not await has_intent(mediator, shop, name, trio[name].id)


async def test_the_size_of_a_transaction_is_bounded(mediator: Service, shop: str) -> None:
    writes = [update(shop, "users", unique(), n=1) for _ in range(MAX_WRITES + 1)]
    reads = [ReadSetEntry("users", unique(), None) for _ in range(MAX_READS + 1)]
    for request in (
        transaction(shop, *writes),
        transaction(shop, reads=reads),
        transaction(shop, writes[0], writes[0]),
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
    keyed_writes = [replace(write, fingerprint="f") for write in writes]
    request = transaction(shop, *keyed_writes, fingerprint="f")
    first = await run(mediator, request)
    retried = await run(mediator, request)
    assert [o.versions for o in retried] == [o.versions for o in first]
    assert [o.values for o in retried] == [o.values for o in first] == [{"n": 1}] * 3
    assert all(outcome.replayed for outcome in retried)
    with pytest.raises(IdempotencyReused):
        await run(mediator, replace(request, fingerprint="g"))
    for name in SINGLE:
        assert await values(mediator, shop, name, trio[name].id) == {"n": 1}
