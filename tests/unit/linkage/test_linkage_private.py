"""Private linkage: encodings, and the reference of P4Join (docs/papers/pprl.md, section 4)."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import json
import sys
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.linkage.private.clk import (
    Clk,
    ClkShape,
    Hardening,
    Keys,
    harden,
    hardened_bits,
    mask_of,
    ngrams,
    normalise,
)
from spark_jobs.linkage.private.key_file import BadKeyFile, make_keys, read_keys
from spark_jobs.linkage.private.limits import min_overlap, prefix_length
from spark_jobs.linkage.private.owner import BadRecords, Encoding, encode_file
from spark_jobs.linkage.private.spec import Filters
from tests.unit.linkage.p4join import Counters, Record, exceeds_position, join, order_of, reordered

KEYS = Keys(b"first key of both owners", b"second key of both owners")
T8 = Fraction(4, 5)
ALL_SWITCHES = [Filters(*switches) for switches in product((False, True), repeat=3)]


def set_bits(text: str) -> tuple[int, ...]:
    return tuple(position for position, bit in enumerate(text) if bit == "1")


O1 = [
    Record(name, source, set_bits(text))
    for source, (name, text) in enumerate(
        {
            "r1": "10100010100101010000",
            "r2": "01110110110110011011",
            "r3": "10111010110111000011",
            "r4": "10101010010111010011",
        }.items()
    )
]


def test_tokens_are_those_of_the_paper() -> None:
    assert ngrams("tom") == [" t", "to", "om", "m "]
    assert [len(ngrams(name)) for name in ("tom", "tomas", "tommas", "thommas")] == [4, 6, 7, 8]
    assert ngrams("") == []


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("O'Neill", "o neill"),
        ("  Müller-Lüdenscheidt ", "muller ludenscheidt"),
        ("", ""),
        ("É", "e"),
        ("\U0001d400nna", "anna"),
        ("\uff21nna", "anna"),
        ("№ 5", "no 5"),
        ("GROẞ", "gross"),
        ("İstanbul", "istanbul"),
    ],
)
def test_variants_of_texts_are_normalised(value: str, form: str) -> None:
    assert normalise(value) == form


def test_normalisation_is_idempotent() -> None:
    """For every character: a decomposition can have case, and a case mapping a decomposition."""
    for code in range(sys.maxunicode + 1):
        normalised = normalise(chr(code))
        assert normalise(normalised) == normalised, hex(code)


def test_positions_are_those_of_double_hashing() -> None:
    f = int.from_bytes(hmac.digest(KEYS.first, b"to", hashlib.sha1))
    g = int.from_bytes(hmac.digest(KEYS.second, b"to", hashlib.md5))
    assert Clk(ClkShape(), KEYS).positions("to") == tuple((f + i * g) % 1000 for i in range(1, 21))


def test_a_subset_of_tokens_has_a_subset_of_bits() -> None:
    clk = Clk(ClkShape(bits=20, hashes=2), KEYS)
    subset, all_tokens = clk.encode(["tom"]), clk.encode(["tom", "tomas"])
    assert subset & all_tokens == subset
    assert clk.encode(["tom", "anna"]) == clk.encode(["anna"]) | clk.encode(["tom"])


def test_a_salt_changes_an_encoding_deterministically() -> None:
    shape = ClkShape()
    assert Clk(shape, KEYS, b"1970").encode(["tom"]) == Clk(shape, KEYS, b"1970").encode(["tom"])
    assert Clk(shape, KEYS, b"1970").encode(["tom"]) != Clk(shape, KEYS, b"1971").encode(["tom"])


def test_hardened_arrays_are_folded_or_balanced() -> None:
    fold, balance = Hardening.XOR_FOLD, Hardening.BALANCE
    assert harden(8, (fold,), b"k")(0b1010_0110) == 0b1100
    balanced = harden(8, (balance,), b"k")
    assert {balanced(record).bit_count() for record in range(256)} == {8}
    assert balanced(3) != harden(8, (balance,), b"other")(3)
    assert hardened_bits(1000, (fold, balance, fold)) == 500
    with pytest.raises(ValueError, match="folded"):
        hardened_bits(7, (fold,))


def test_keys_are_created_once_and_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    make_keys(path)
    keys = read_keys(path)
    assert len(keys.first) == len(keys.second) == 32
    assert "first" not in repr(keys)
    with pytest.raises(BadKeyFile, match="there already"):
        make_keys(path)
    path.chmod(0o644)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        read_keys(path)


@pytest.mark.parametrize("text", ["", "[]", '{"first": "zz", "second": ""}', '{"first": "00"}'])
def test_an_invalid_key_file_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(BadKeyFile) as error:
        read_keys(path)
    assert "zz" not in str(error.value)
    with pytest.raises(BadKeyFile, match="new-keys"):
        read_keys(tmp_path / "nothing")


def people(path: Path, rows: list[dict[str, str]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["id", "name"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
def test_a_file_of_people_is_encoded_in_its_order(
    tmp_path: Path, suffix: str, workers: int
) -> None:
    rows = [{"id": f"p{n}", "name": f"Tom {n}", "born": str(1900 + n % 9)} for n in range(40)]
    source = people(tmp_path / f"people.{suffix}", rows)
    target = tmp_path / f"encoded.{suffix}"
    counts: list[int] = []
    encoding = Encoding(("name",), salt="born", workers=workers)
    assert encode_file(source, target, encoding, KEYS, counts.append) == sum(counts) == 40
    text = target.read_text().splitlines()
    if suffix == "csv":
        assert text[0] == "id,clk"
        pairs = [line.split(",") for line in text[1:]]
    else:
        pairs = [list(json.loads(line).values()) for line in text]
    assert [id_ for id_, _ in pairs] == [row["id"] for row in rows]
    for (_, clk), row in zip(pairs, rows, strict=True):
        expected = Clk(ClkShape(), KEYS, row["born"].encode()).encode([normalise(row["name"])])
        assert int.from_bytes(base64.b64decode(clk)) == expected
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"id": "1", "nom": "a"}], "record 1: there is no column name"),
        ([{"id": "1", "name": "a"}, {"id": "1", "name": "b"}], "record 2: its id is a duplicate"),
        ([{"id": "", "name": "a"}], "record 1: it has no id"),
        ([{"id": "1", "name": " - "}], "record 1: its linkage fields are empty"),
        ([], "no records"),
    ],
)
def test_invalid_records_are_refused_and_leave_no_file(
    tmp_path: Path, rows: list[dict[str, str]], problem: str
) -> None:
    source = people(tmp_path / "people.csv", rows)
    target = tmp_path / "encoded.csv"
    with pytest.raises(BadRecords, match=problem):
        encode_file(source, target, Encoding(("name",)), KEYS, lambda _: None)
    assert list(tmp_path.iterdir()) == [source]


SALTED = Encoding(("name",), salt="born")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["1,Tom,1970", "2,Müller, Jan,1970"], "record 2 cannot be read: .* as many values"),
        (["1,Tom,1970", "", "2,Tom"], "record 2 cannot be read: .* as many values"),
        (["1"], "record 1 cannot be read: .* as many values"),
        (["1,Tom,1970", "2,Tom,"], "record 2: its salt is empty"),
        (["1,Tom, "], "record 1: its salt is empty"),
    ],
)
def test_records_with_shifted_values_or_without_a_salt_are_refused(
    tmp_path: Path, lines: list[str], problem: str
) -> None:
    source, target = tmp_path / "people.csv", tmp_path / "encoded.csv"
    source.write_text("\n".join(["id,name,born", *lines]) + "\n")
    with pytest.raises(BadRecords, match=problem):
        encode_file(source, target, SALTED, KEYS, lambda _: None)
    assert not target.exists()


def test_columns_that_share_a_name_are_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "people.csv", tmp_path / "encoded.csv"
    source.write_text("id,name,town,name,town\n1,Tom,Ulm,Tim,Bonn\n")
    with pytest.raises(BadRecords, match="several columns name, town"):
        encode_file(source, target, Encoding(("name",)), KEYS, lambda _: None)
    assert not target.exists()


def test_json_objects_need_a_salt_and_can_lack_other_values(tmp_path: Path) -> None:
    source, target = tmp_path / "people.ndjson", tmp_path / "encoded.csv"
    row = {"id": "1", "name": "Tom", "town": None, "born": 1970}
    encoding = Encoding(("name", "town"), salt="born")
    source.write_text(json.dumps(row))
    assert encode_file(source, target, encoding, KEYS, lambda _: None) == 1
    source.write_text(json.dumps({**row, "born": None}))
    with pytest.raises(BadRecords, match="record 1: its salt is empty"):
        encode_file(source, target, encoding, KEYS, lambda _: None)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\n",
        b"[1]\n",
        b"{\n",
        b'{"id": "1", "name": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"id": "1", "name": ' + b"1" * 5_000 + b"}\n",
    ],
    ids=["not text", "an array", "not JSON", "nested deeply", "a long number"],
)
def test_a_file_in_another_format_than_its_suffix_is_refused(
    tmp_path: Path, content: bytes
) -> None:
    source = tmp_path / "people.ndjson"
    source.write_bytes(content)
    with pytest.raises(BadRecords, match=r"record 1 (cannot be read|is nested too deeply)"):
        encode_file(source, tmp_path / "out.csv", Encoding(("name",)), KEYS, lambda _: None)


def test_o1_every_cell() -> None:
    order = order_of(O1)
    assert list(order) == [1, 5, 16, 3, 4, 0, 8, 9, 12, 13, 15, 18, 19, 2, 6, 11]
    bits_by_id = {record.id: reordered(record, order) for record in O1}
    assert bits_by_id["r1"] == set_bits("00000110011001110000")
    assert bits_by_id["r2"] == set_bits("11110011101111110000")
    assert bits_by_id["r3"] == set_bits("00011111110111110000")
    assert bits_by_id["r4"] == set_bits("00001101111111110000")
    prefixes = {name: bits[: prefix_length(len(bits), T8)] for name, bits in bits_by_id.items()}
    assert prefixes == {
        "r1": (5, 6, 9),
        "r2": (0, 1, 2, 3),
        "r3": (3, 4, 5, 6),
        "r4": (4, 5, 7, 8),
    }
    counters = Counters()
    assert list(join(O1, T8, counters=counters)) == []
    assert (counters.after_length, counters.after_prefix, counters.after_position) == (3, 2, 0)
    assert not exceeds_position(bits_by_id["r4"], bits_by_id["r3"], (4, 4), T8)


def test_o2_the_strings_of_figure_2() -> None:
    names = ("tom", "thommas", "tommas", "tomas")
    tokens = sorted({ngram for name in names for ngram in ngrams(name)})
    records = [
        Record(name, source, tuple(sorted(map(tokens.index, ngrams(name)))))
        for source, name in enumerate(names)
    ]
    [match] = join(records, T8)
    assert (match.left, match.right, match.similarity) == ("tommas", "tomas", Fraction(6, 7))


def test_o4_arithmetic_is_exact() -> None:
    assert min_overlap(10, 10, T8) == 9
    assert prefix_length(10, T8) == 3
    assert prefix_length(1, T8) == 1
    assert (
        min_overlap(31, 32, T8) == 28
    )  # in floating point it would be 29, and the pair would be lost
    x, y = tuple(range(31)), (*range(28), 40, 41, 42, 43)
    [match] = join([Record("x", 0, x), Record("y", 1, y)], T8)
    assert match.similarity == T8


RECORDS = st.lists(
    st.frozensets(st.integers(0, 39), min_size=1, max_size=20), min_size=2, max_size=14
)


@given(RECORDS, st.sampled_from([Fraction(n, 10) for n in (1, 5, 6, 7, 8, 9, 10)]))
def test_o5_every_combination_of_filters_finds_the_pairs_of_brute_force(
    bit_sets: list[frozenset[int]], threshold: Fraction
) -> None:
    records = [
        Record(str(number), number % 3, tuple(sorted(bits))) for number, bits in enumerate(bit_sets)
    ]
    expected = {
        (a.id, b.id)
        for a, b in combinations(sorted(records, key=lambda r: r.source), 2)
        if a.source != b.source
        and Fraction(len({*a.bits} & {*b.bits}), len({*a.bits} | {*b.bits})) >= threshold
    }
    for filters in ALL_SWITCHES:
        assert {(m.left, m.right) for m in join(records, threshold, filters)} == expected


@pytest.mark.parametrize("threshold", [Fraction(0), Fraction(11, 10), Fraction(-1)])
def test_a_threshold_out_of_bounds_is_refused(threshold: Fraction) -> None:
    with pytest.raises(ValueError, match="threshold"):
        list(join(O1, threshold))
    with pytest.raises(ValueError, match="without any bit"):
        list(join([Record("x", 0, ())], T8))


def test_position_0_is_the_highest_bit_of_a_mask() -> None:
    assert mask_of([0, 7], 8) == 0b1000_0001
