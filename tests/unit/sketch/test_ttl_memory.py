"""The memory of estimators: bounded, biased to requested keys, shared by replicas."""

from __future__ import annotations

from random import Random

import orjson
import pytest

from sketch.protocol.port import Partition
from sketch.ttl import Cate, CateSettings, Learner, Memory
from sketch.ttl.history import CopyOutcome, KeyHistory
from sketch.ttl.rates import ClassRates, Reservoir

PARTITION = Partition("paper", "articles")
KEY = ("articles/1#all",)
UNWEIGHTED = CateSettings(ratio="unweighted")


def test_the_sample_is_bounded() -> None:
    sample = Reservoir(100, Random(1))
    for number in range(10_000):
        sample.admit(str(number), float(number))
    assert len(sample) == len(list(sample)) == 100


def test_the_sample_prefers_keys_that_are_requested_often() -> None:
    rates, random = ClassRates(Memory(keys=100), Random(1), 0), Random(2)
    for at in range(20_000):
        number = random.randrange(50) if random.random() < 0.8 else random.randrange(50, 5_000)
        rates.missed(str(number), float(at))
    sampled = {int(key) for key, _ in rates.keys}
    assert len(sampled) == 100
    assert len([number for number in sampled if number < 50]) >= 45


def test_the_outcome_of_copies() -> None:
    history = KeyHistory(0)
    assert history.granted(0, 10, 0) is CopyOutcome.OPEN
    assert history.wrote(5, 0.9) is CopyOutcome.INVALIDATED
    assert history.stale_until_s == 10
    assert history.wrote(6, 0.9) is CopyOutcome.INVALIDATED, (
        "purged again: copies may have come back"
    )
    assert history.granted(12, 3, 0) is CopyOutcome.OPEN
    assert history.granted(20, 3, 0) is CopyOutcome.UNCHANGED
    assert history.wrote(30, 0.9) is CopyOutcome.SPARED
    assert history.wrote(31, 0.9) is CopyOutcome.OPEN, "there was no copy since"


def test_reads_are_counted_where_no_copy_answers() -> None:
    """A key that is read ten times a second, and cached for nine seconds of ten."""
    rates = ClassRates(Memory(transit_s=0), Random(1), 0)
    now = 0.0
    for _ in range(300):
        history = rates.missed("x", now)
        assert history is not None
        history.granted(now, 9.0, 0.0)
        now += 9.1
    estimate = rates.at_miss("x", rates.keys.get("x"), now)
    assert estimate.misses == pytest.approx(1 / 9.1, rel=0.05)
    assert estimate.reads == pytest.approx(10, rel=0.05)
    assert not estimate.written


def test_a_new_key_begins_with_the_rates_of_its_class() -> None:
    rates = ClassRates(Memory(), Random(1), 0)
    for at in range(1_000):
        rates.missed(f"x{at % 10}", float(at))
        if at % 2:
            key = f"x{at % 10}"
            rates.wrote(key, rates.keys.get(key), float(at))
    estimate = rates.at_miss("new", None, 1_000)
    assert (estimate.misses, estimate.writes) == pytest.approx((0.1, 0.05), rel=0.1)
    assert not estimate.written, "a key that was never seen was never written"


def test_the_write_that_a_key_begins_with_is_not_counted_of_the_key() -> None:
    """Not even if its first reader came before its end; only a cached copy changes that."""
    rates = ClassRates(Memory(), Random(1), 0)
    for at, ttl_s in ((1.0, 0.0), (2.0, 10.0)):
        key = f"x{at}"
        history = rates.missed(key, at)
        assert history is not None
        history.granted(at, ttl_s, 0.0)
        rates.wrote(key, history, at + 0.001)
        assert history.writes == (ttl_s > 0)
        assert history.written
        assert history.unwritten_s(at + 5.001) == pytest.approx(5 + 0.001 * (ttl_s > 0))
        rates.wrote(key, history, at + 1)
        assert history.writes == pytest.approx(1 + (ttl_s > 0), rel=0.02)


def test_an_update_of_an_unknown_key_counts_for_its_class_while_memory_allows() -> None:
    """Forgotten keys count for nothing: the class's rates cover only remembered keys."""
    rates = ClassRates(Memory(keys=3), Random(1), 0)
    for number in range(3):
        rates.wrote(f"x{number}", None, 1.0)
    assert rates.writes.per_s(1.0) == pytest.approx(3.5, rel=0.01)
    for number in range(3, 100):
        rates.wrote(f"x{number}", None, 1.0)
    assert rates.writes.per_s(1.0) == pytest.approx(3.5, rel=0.01)


def test_creations_are_not_writes() -> None:
    """They suggest that records of the class do not change, if it is read at the same time."""
    rates = ClassRates(Memory(), Random(1), 0)
    for number in range(100):
        rates.created(f"imported{number}", None, 0.5)
    assert rates.writes.per_s(1.0) == 0.5
    for number in range(9):
        rates.missed("x", 0.7)
        rates.created(f"made{number}", None, 0.8)
        rates.created(f"too{number}", None, 0.8)
    assert rates.writes.per_s(1.0) == 0.05
    rates.wrote("x", rates.keys.get("x"), 1.0)
    assert rates.writes.per_s(1.0) == pytest.approx(1.05), "one update, and nothing is assumed"


@pytest.mark.parametrize("read", [False, True])
def test_a_creation_is_recognised_before_and_after_the_first_read(read: bool) -> None:
    """It starts a key's history, even if the first reader came a moment before it."""
    last = Learner()
    ttls = []
    for created in (set[str](), set(KEY)):
        learner = Learner()
        if read:
            learner.missed(PARTITION, KEY, 1.0, 0.0)
        learner.wrote(PARTITION, KEY, 1.0, created=created)
        ttls.append(learner.ttl_s(PARTITION, KEY, 3.0))
        last = learner
    assert ttls[0] < 0.9 * ttls[1], "an update is a sign that there will be more"
    last.wrote(PARTITION, KEY, 4.0)
    assert last.ttl_s(PARTITION, KEY, 5.0) < ttls[1]


def test_a_ttl_without_a_proposal_is_no_sample() -> None:
    history = KeyHistory(0)
    history.granted(0, 10, 0)
    assert history.sample is None


@pytest.mark.parametrize(("is_cached", "expected"), [(False, 0), (True, 1)])
def test_a_creation_invalidates_copies_of_the_absence(is_cached: bool, expected: int) -> None:
    """A cached answer that there is no such record is stale once it exists."""
    learner = Learner(memory=Memory(transit_s=0))
    learner.missed(PARTITION, KEY, 0.0, 10.0 if is_cached else 0.0)
    learner.wrote(PARTITION, KEY, 1.0, created=set(KEY))
    assert learner.regrets[PARTITION].invalidations == expected


def test_a_forgotten_key_counts_as_possibly_written() -> None:
    rates = ClassRates(Memory(keys=5), Random(1), 0)
    for at in range(100):
        key = f"x{at % 5}"
        rates.missed(key, float(at))
        rates.wrote(key, rates.keys.get(key), float(at))
    assert rates.at_miss("new", None, 100).written


def spread(replicas: list[Cate], seconds: int, *, exchange: bool) -> None:
    """Spread two misses and a write per second, each at a random replica."""
    random = Random(3)
    for at in range(seconds):
        for offset in (0.0, 0.5):
            replica = random.choice(replicas)
            replica.ttl_s(PARTITION, KEY, at + offset)
            replica.missed(PARTITION, KEY, at + offset, 0.0)
        random.choice(replicas).wrote(PARTITION, KEY, at + 0.7)
        if exchange and at % 10 == 0:
            shared = [
                orjson.loads(orjson.dumps(list(replica.share(at + 0.8)))) for replica in replicas
            ]
            for number, replica in enumerate(replicas):
                replica.merge(shared[:number] + shared[number + 1 :], at + 0.8)


def test_replicas_together_know_the_rates() -> None:
    (alone,) = single = [Cate(UNWEIGHTED)]
    spread(single, 1_000, exchange=False)
    ttl_s = alone.ttl_s(PARTITION, KEY, 1_000)
    together, separate = ([Cate(UNWEIGHTED) for _ in range(4)] for _ in range(2))
    spread(together, 1_000, exchange=True)
    spread(separate, 1_000, exchange=False)
    for replica in together:
        assert replica.ttl_s(PARTITION, KEY, 1_000) == pytest.approx(ttl_s, rel=0.35)
    for replica in separate:
        assert replica.ttl_s(PARTITION, KEY, 1_000) > 2 * ttl_s
    silent = together[0].ttl_s(PARTITION, KEY, 1_200)
    assert silent > 2 * ttl_s, "the rates that the others shared are too old"


def test_nothing_is_learned_from_copies_whose_keys_other_replicas_write() -> None:
    """They would seem to have no writers: TTLs would grow without end."""

    def grow(exchange: bool) -> tuple[list[Learner], float]:
        random, replicas, now = Random(5), [Learner(seed=n) for n in range(2)], 0.0
        for number in range(20_000):
            now += random.expovariate(10)
            key = (f"articles/{int(random.paretovariate(0.5)) % 50}#all",)
            replica = random.choice(replicas)
            if random.random() < 0.2:
                replica.wrote(PARTITION, key, now)
            else:
                replica.missed(PARTITION, key, now, replica.ttl_s(PARTITION, key, now))
            if exchange and number % 50 == 0:
                shared = [list(replica.share(now)) for replica in replicas]
                for mine, theirs in zip(replicas, reversed(shared), strict=True):
                    mine.merge([theirs], now)
        return replicas, now

    def count_evaluated(replicas: list[Learner]) -> int:
        return sum(replica.regrets[PARTITION].judged for replica in replicas)

    separate, _ = grow(exchange=False)
    assert count_evaluated(separate) > 1_000
    together, now = grow(exchange=True)
    before = count_evaluated(together)
    assert before < 0.01 * count_evaluated(separate), "before the first exchange"
    assert [replica.parameters[PARTITION].slope.value for replica in together] == pytest.approx(
        [1, 1], 0.05
    )
    for at in (now + 100, now + 200, now + 300):
        together[0].missed(PARTITION, KEY, at, together[0].ttl_s(PARTITION, KEY, at))
        together[0].wrote(PARTITION, KEY, at + 90)
    assert count_evaluated(together) > before, (
        "the rates that the others shared are too old: it is alone again"
    )


def test_a_key_known_only_to_other_replicas_gets_their_ttl() -> None:
    experienced, new = Cate(UNWEIGHTED), Cate(UNWEIGHTED)
    spread([experienced], 500, exchange=False)
    new.merge([list(experienced.share(500))], 500)
    expected = experienced.ttl_s(PARTITION, KEY, 500)
    assert new.ttl_s(PARTITION, KEY, 500) == pytest.approx(expected, rel=0.2)


def test_keys_that_are_not_shared_have_the_rates_of_their_class() -> None:
    """The class has four times the writes and misses that this replica sees."""
    rates = ClassRates(Memory(), Random(1), 0)
    for at in range(1_000):
        rates.missed("x", float(at))
        rates.wrote("x", rates.keys.get("x"), at + 0.5)
    own_rates = rates.at_miss("x", rates.keys.get("x"), 1_000)
    rates.peers = rates.peers._replace(misses=3.0, writes=3.0, until_s=2_000)
    class_rates = rates.at_miss("x", rates.keys.get("x"), 1_000)
    assert class_rates.misses == pytest.approx(4 * own_rates.misses, rel=0.01)
    assert class_rates.writes == pytest.approx(4 * own_rates.writes, rel=0.01)


@pytest.mark.parametrize("estimator", [Cate(), Learner()], ids=["cate", "learner"])
def test_the_shared_state_is_bounded(estimator: Cate | Learner) -> None:
    for number in range(5_000):
        estimator.missed(PARTITION, (f"articles/{number}#all",), float(number))
    assert len(orjson.dumps(list(estimator.share(5_000)))) < 50_000


def test_the_shared_state_of_many_classes_is_bounded() -> None:
    estimator = Cate()
    for number in range(100):
        keys = [f"c{number}/{id_}#all" for id_ in range(200)]
        for at in (0.0, 1.0):
            estimator.missed(Partition("paper", f"c{number}"), keys, at)
    shared = list(estimator.share(2))
    assert len(shared) == 100
    assert sum(len(entry[-1]) for entry in shared) == 5_000


def test_copies_count_as_fresh_for_the_margin() -> None:
    history = KeyHistory(0)
    history.granted(0, 10, 0, 5)
    assert history.wrote(12, 0.9) is CopyOutcome.INVALIDATED
    assert history.stale_until_s == 15
    history.granted(20, 10, 0, 5)
    assert history.wrote(36, 0.9) is CopyOutcome.SPARED
