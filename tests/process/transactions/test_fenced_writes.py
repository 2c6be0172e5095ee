"""Resolved orphans: fenced wherever they can still land, and reported with current versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mediator.base.errors import OutcomeUnknown, Unavailable
from mediator.model.guard import CacheKey, Effects, NullGuard, WriteToken
from mediator.model.operations import Create, Delete, Get, Outcome, Update
from mediator.routing.freshness import WHOLE
from mediator.stores.port import SystemConfig
from mediator.transactions.log import TransactionEntry
from tests.process.service import (
    Service,
    field_on,
    scratch_catalogue,
    scratch_systems,
    service,
    unique,
)

CLASSES = {
    "pairs": {
        "fields": {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", group="hits"),
            "note": field_on("mongo", group="note"),
        }
    },
    "notes": {"fields": {"text": field_on("mongo")}},
}


@dataclass
class Tokens(NullGuard):
    """A guard that records its calls."""

    wants_versions = True
    started: list[tuple[str, tuple[CacheKey, ...]]] = field(default_factory=list)
    ended: dict[str, Mapping[CacheKey, int]] = field(default_factory=dict)
    created: dict[str, Collection[CacheKey]] = field(default_factory=dict)
    next_token: str = ""
    refused: frozenset[str] = frozenset()

    async def begin(self, database: str, keys: Sequence[CacheKey]) -> WriteToken:
        if not self.refused.isdisjoint(key.id for key in keys):
            raise Unavailable("It does not answer.", system="the guard")
        token, self.next_token = self.next_token or unique("token"), ""
        self.started.append((token, tuple(keys)))
        return WriteToken(token)

    async def end(
        self,
        database: str,
        token: WriteToken,
        versions: Mapping[CacheKey, int],
        effects: Effects | None = None,
        created: Collection[CacheKey] = (),
    ) -> None:
        self.ended[token.text] = versions
        self.created[token.text] = created


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture(scope="module")
async def guarded(
    redis_config: SystemConfig,
    postgresql_config: SystemConfig,
    mongodb_config: SystemConfig,
    tokens: Tokens,
) -> AsyncIterator[Service]:
    async with (
        scratch_catalogue(postgresql_config) as catalogue,
        scratch_systems(redis_config, postgresql_config, mongodb_config) as systems,
        service(systems, catalogue, guard=tokens) as instance,
    ):
        await instance.favour()
        yield instance


@pytest.fixture(scope="module")
async def database(guarded: Service) -> str:
    database = await guarded.put_schema(CLASSES)
    assert guarded.systems_of(database, "pairs") == ("postgres", "redis", "mongo")
    return database


async def take_nothing(*_: object) -> list[TransactionEntry]:
    return []


def keys_of(id_: str) -> list[CacheKey]:
    return [CacheKey("pairs", id_, group) for group in ("main", "hits", "note")]


async def test_recovery_reports_the_current_versions(guarded: Service, database: str) -> None:
    resolve = guarded.mediator.orphan_resolver.resolve
    id_ = unique()
    assert await resolve(database, keys_of(id_), unique()) == {}
    created = await guarded.create(database, "pairs", id_, title="a", hits=1, note="b")
    versions = await resolve(database, keys_of(id_), unique())
    assert versions == {CacheKey("pairs", id_, g): v for g, v in created.versions.items()}
    deleted = await guarded.mediator.data.write(Delete(database, "pairs", id_, unique()))
    versions = await resolve(database, keys_of(id_), unique())
    assert versions == {CacheKey("pairs", id_, g): v for g, v in deleted.versions.items()}
    one = [CacheKey("pairs", id_, "hits")]
    assert (await resolve(database, one, unique())).keys() == set(one)


async def test_creations_are_reported_to_the_sketch(
    guarded: Service, database: str, tokens: Tokens
) -> None:
    """By all systems that hold a fragment of the object, also after a deletion."""
    id_ = unique()
    keys = set(keys_of(id_))

    def take_created() -> set[CacheKey]:
        created = set().union(*tokens.created.values()) & keys
        tokens.created.clear()
        return created

    update = Update(database, "pairs", id_, unique(), values={"title": "b", "hits": 2})
    for _ in range(2):
        await guarded.create(database, "pairs", id_, title="a", hits=1, note="b")
        assert take_created() == keys
        await guarded.mediator.data.write(replace(update, operation=unique()))
        assert not take_created()
        await guarded.mediator.data.write(Delete(database, "pairs", id_, unique()))
        assert not take_created()
    creations = [
        Create(database, "notes", f"{id_}{n}", unique(), values={"text": "a"}) for n in (1, 2)
    ]
    await guarded.mediator.data.batch(creations)
    assert set().union(*tokens.created.values()) >= {
        CacheKey("notes", f"{id_}{n}", "main") for n in (1, 2)
    }


async def test_keys_of_missing_classes_and_groups_are_skipped(
    guarded: Service, database: str
) -> None:
    resolve = guarded.mediator.orphan_resolver.resolve
    missing_keys = [
        CacheKey("ghosts", "1", "main"),
        CacheKey("pairs", "1", "ghost"),
        CacheKey.parse("nonsense"),
    ]
    assert await resolve(database, missing_keys, "token") == {}
    assert await resolve("nowhere", missing_keys, "token") == {}


@pytest.mark.parametrize("names", [("title",), ("hits",), ("note",)])
async def test_a_write_after_its_recovery_is_rejected(
    guarded: Service, database: str, tokens: Tokens, names: Sequence[str]
) -> None:
    id_, token = unique(), unique()
    await guarded.create(database, "pairs", id_, title="a", hits=1, note="b")
    await guarded.mediator.orphan_resolver.resolve(database, keys_of(id_), token)
    values: dict[str, Any] = {"title": "late", "hits": 9, "note": "late"}
    update = Update(database, "pairs", id_, unique(), values={name: values[name] for name in names})
    tokens.next_token = token
    with pytest.raises(Unavailable, match="too late"):
        await guarded.mediator.data.write(update)
    assert token in tokens.ended
    assert await guarded.values(database, "pairs", id_) == {"title": "a", "hits": 1, "note": "b"}
    await guarded.mediator.data.write(update)
    assert await guarded.values(database, "pairs", id_) != {"title": "a", "hits": 1, "note": "b"}


async def test_only_the_fenced_writes_of_a_batch_fail(
    guarded: Service, database: str, tokens: Tokens
) -> None:
    ids, token = [unique() for _ in range(8)], unique()
    for id_ in ids:
        await guarded.create(database, "notes", id_, text="a")
    await guarded.mediator.orphan_resolver.resolve(
        database, [CacheKey("notes", ids[3], "main")], token
    )
    tokens.next_token = token
    updates = [Update(database, "notes", i, unique(), values={"text": "b"}) for i in ids]
    results = await guarded.mediator.data.batch(updates)
    assert [i for i, result in enumerate(results) if isinstance(result, Unavailable)] == [3]
    texts = [await guarded.values(database, "notes", id_) for id_ in ids]
    assert [values == {"text": "a"} for values in texts] == [i == 3 for i in range(8)]


async def test_a_fenced_step_is_rolled_forward_under_a_new_token(
    guarded: Service, database: str, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step has taken effect, so the others must, whatever their token."""
    id_, token = unique(), unique()
    # Recovery would roll it forward as well, under another token.
    monkeypatch.setattr(guarded.mediator.transactions.log, "take", take_nothing)
    await guarded.create(database, "pairs", id_, title="a", hits=1, note="b")
    await guarded.mediator.orphan_resolver.resolve(
        database, [CacheKey("pairs", id_, "hits")], token
    )
    begin = tokens.begin

    async def begin_late(database: str, keys: Sequence[CacheKey]) -> WriteToken:
        if keys == [CacheKey("pairs", id_, "hits")]:
            tokens.next_token = token
            tokens.begin = begin  # type: ignore[method-assign]  # once only
        return await begin(database, keys)

    tokens.begin = begin_late  # type: ignore[method-assign]  # a guard of the test's own
    update = Update(database, "pairs", id_, unique(), values={"title": "b", "hits": 2})
    with pytest.raises(OutcomeUnknown):
        await guarded.mediator.data.write(update)
    outcome = await guarded.mediator.data.read(Get(database, "pairs", id_), WHOLE)
    assert outcome.values == {"title": "b", "hits": 2, "note": "b"}
    hits_tokens = [t for t, keys in tokens.started if keys == (CacheKey("pairs", id_, "hits"),)]
    assert len(set(hits_tokens)) == len(hits_tokens) == 3, "created, too late, rolled forward"
    assert set(hits_tokens) <= tokens.ended.keys()


@pytest.fixture
def narrow(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> Tokens:
    """The guard, limited to three keys per call."""
    monkeypatch.setattr(tokens, "max_keys", 3)
    monkeypatch.setattr(tokens, "started", [])
    return tokens


def new_notes(database: str, count: int) -> list[Create]:
    return [
        Create(database, "notes", unique(f"n{number}"), unique(), values={"text": "new"})
        for number in range(count)
    ]


async def test_a_batch_beyond_the_limit_of_the_guard_is_written_in_parts(
    guarded: Service, database: str, narrow: Tokens
) -> None:
    notes = new_notes(database, 7)
    outcomes = await guarded.mediator.data.batch(notes)
    assert all(isinstance(outcome, Outcome) and outcome.created for outcome in outcomes)
    ids = [note.id for note in notes]
    calls = [(token, [key.id for key in keys]) for token, keys in narrow.started]
    own_calls = [(token, key_ids) for token, key_ids in calls if set(key_ids) <= set(ids)]
    assert [key_ids for _, key_ids in own_calls] == [ids[:3], ids[3:6], ids[6:]]
    assert [len(narrow.ended[token]) for token, _ in own_calls] == [3, 3, 1]


async def test_an_object_with_more_groups_than_the_limit_of_the_guard_is_written_alone(
    guarded: Service, database: str, narrow: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard itself decides whether to accept it."""
    monkeypatch.setattr(narrow, "max_keys", 0)
    outcomes = await guarded.mediator.data.batch(new_notes(database, 2))
    assert all(isinstance(outcome, Outcome) for outcome in outcomes)


async def test_parts_that_were_written_before_a_failure_are_acknowledged(
    guarded: Service, database: str, narrow: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = new_notes(database, 9)
    monkeypatch.setattr(narrow, "refused", frozenset([notes[4].id]))
    outcomes = await guarded.mediator.data.batch(notes)
    assert [isinstance(outcome, Outcome) for outcome in outcomes] == 3 * [True] + 6 * [False]
    assert {type(outcome) for outcome in outcomes[3:]} == {Unavailable}
    gets = [Get(database, "notes", note.id) for note in notes]
    results = await guarded.mediator.data.batch(gets)
    assert [isinstance(outcome, Outcome) for outcome in results] == 3 * [True] + 6 * [False]
