"""Names: words, spelling and abbreviations."""

from __future__ import annotations

import pytest

from spark_jobs.matching.schemas.background import Background, Statement
from spark_jobs.matching.schemas.names import Vocabulary, name_evidence, names_of
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.words import words_of

LEFT = ["customer_id", "first_name", "last_name", "street", "postal_code", "date_of_birth"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dateOfBirth", ("date", "of", "birth")),
        ("HTTPServer_port", ("http", "server", "port")),
        ("  ", ()),
        ("Straße", ("strasse",)),
        ("名前", ("名前",)),
        ("ﬁle", ("file",)),
        ("नाम", ("नाम",)),
        ("a" * 5_000, ("a" * 1_000,)),
    ],
)
def test_words(text: str, words: tuple[str, ...]) -> None:
    assert words_of(text) == words


def best(right: list[str], background: Background | None = None) -> dict[str, str]:
    """Return, for each right name, the left name with the most evidence."""
    left, right_names = names_of(LEFT), names_of(right)
    vocabulary = Vocabulary(left, right_names, background)
    return {
        right_name.text: max(
            left, key=lambda name: name_evidence(name, right_name, vocabulary).bits
        ).text
        for right_name in right_names
    }


def test_abbreviations_and_spellings_are_recognised() -> None:
    right = ["CustID", "FstNm", "lname", "STRT", "postcode", "DOB"]
    assert best(right) == dict(zip(right, LEFT, strict=True))


def test_a_common_prefix_of_all_names_is_ignored() -> None:
    right = ["crm_cid", "crm_fname", "crm_lname", "crm_str", "crm_pc", "crm_dob"]
    assert best(right) == dict(zip(right, LEFT, strict=True))
    assert names_of(["crm_a", "b"])[0].words == ("crm", "a")


def test_equal_names_are_stronger_evidence_than_longer_ones() -> None:
    left = names_of(["name", "name_of_firm", "x"])
    vocabulary = Vocabulary(left, left)
    equal, longer = (name_evidence(left[0], other, vocabulary) for other in left[:2])
    assert equal.bits > longer.bits
    assert equal.reason == "the names are equal"


def test_unexplained_letters_are_evidence_against_a_pair() -> None:
    names = names_of(["street", "xyzzy"])
    assert name_evidence(names[0], names[1], Vocabulary(names, names)).bits < 0


def test_equal_words_of_the_background_count_as_equal() -> None:
    background = Background([Statement("street", "road", Relation.EQUAL)])
    road = ["road", "zzz"]
    assert best(road, background)["road"] == "street"
    left, right = names_of(LEFT), names_of(road)
    vocabularies = (Vocabulary(left, right), Vocabulary(left, right, background))
    bits, bits_with_background = (name_evidence(left[3], right[0], v).bits for v in vocabularies)
    assert bits < 0 < bits_with_background


def test_names_without_words_are_no_evidence() -> None:
    names = names_of(["---", "street"])
    assert name_evidence(names[0], names[1], Vocabulary(names, names)).bits == 0
