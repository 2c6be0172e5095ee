"""JSON schemas and ontologies, valid and hostile."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark_jobs.matching.schemas import json_schemas, ontologies
from spark_jobs.matching.schemas.json_schemas import parse_json_schema
from spark_jobs.matching.schemas.ontologies import check_labels, parse_ontology
from spark_jobs.runner.port import InputUnfit


def paths(schema: Any) -> dict[str, str]:
    return {
        element.identifier: element.type
        for element in parse_json_schema(json.dumps(schema), "left")
    }


def test_properties_are_found_below_objects_items_variants_and_references() -> None:
    schema = {
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        "properties": {
            "name": {"type": ["string", "null"]},
            "home": {"$ref": "#/$defs/place"},
            "tags": {"type": "array", "items": {"properties": {"word": {"type": "string"}}}},
            "pay": {"oneOf": [{"properties": {"iban": {}}}, {"properties": {"card": {}}}]},
        },
    }
    assert paths(schema) == {
        "name": "string",
        "home": "object",
        "home.city": "string",
        "tags": "array",
        "tags.word": "string",
        "pay": "",
        "pay.iban": "",
        "pay.card": "",
    }


def test_cyclic_and_external_references_terminate() -> None:
    schema = {
        "properties": {
            "next": {"$ref": "#"},
            "loop": {"$ref": "#/properties/loop"},
            "far": {"$ref": "https://example.org/schema.json"},
        }
    }
    assert set(paths(schema)) >= {"next", "loop", "far"}


def test_depth_and_number_of_properties_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    schema: dict[str, Any] = {"properties": {"leaf": {}}}
    for level in range(50):
        schema = {"properties": {f"n{level}": schema}}
    assert len(paths(schema)) == 9
    monkeypatch.setattr(json_schemas, "MAX_ELEMENTS", 3)
    with pytest.raises(InputUnfit, match="3 properties at most"):
        paths({"properties": {str(n): {} for n in range(4)}})


@pytest.mark.timeout(60)  # its identifiers would take gigabytes
def test_the_length_of_a_propertys_path_is_bounded() -> None:
    properties: dict[str, Any] = {"properties": {str(n): {} for n in range(1_500)}}
    for nested in (
        {"x" * 3_000_000: properties},
        {"x" * 600: {"properties": {"y" * 600: properties}}},
    ):
        with pytest.raises(InputUnfit, match=r"left: the names .* 1,000 characters at most"):
            paths({"properties": nested})
    assert len(paths({"properties": {"x" * 996: properties}})) == 1_501


def test_an_identifier_is_one_string_object() -> None:
    (element, _) = parse_json_schema('{"properties": {"a": {"properties": {"b": {}}}}}', "left")[
        ::-1
    ]
    assert element.identifier == "a.b"
    assert element.identifier is element.identifier


def test_invalid_json_types_are_ignored() -> None:
    """Candidates of equal types name the type, so each would contain a text of any length."""
    types: dict[str, Any] = {"a": "x" * 1_000, "b": ["x" * 1_000, "null"], "c": "string", "d": {}}
    schema = {"properties": {name: {"type": type_} for name, type_ in types.items()}}
    assert paths(schema) == {"a": "", "b": "", "c": "string", "d": ""}


def chained(count: int, link: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a schema whose definitions each refer to the next."""
    definitions = {f"d{n}": link({"$ref": f"#/definitions/d{n + 1}"}) for n in range(count)}
    return {"definitions": definitions, "anyOf": [{"$ref": "#/definitions/d0"}]}


LONG = "#" + "/x" * 100_000


@pytest.mark.timeout(60)  # it would take years
@pytest.mark.parametrize(
    "schema",
    [
        chained(60, lambda following: {"anyOf": [following, following]}),
        chained(60, lambda following: {"items": following, "allOf": [following]}),
        chained(20_000, lambda following: following),
        chained(40, lambda following: {"anyOf": [following, following, *[1] * 10_000]}),
        {"$defs": {"far": {"$ref": LONG}}, "anyOf": [{"$ref": "#/$defs/far"}] * 80_000},
    ],
    ids=["doubled", "doubled by items", "long", "wide", "a long name"],
)
def test_references_that_expand_without_bound_are_refused(schema: Any) -> None:
    with pytest.raises(InputUnfit, match="references"):
        paths({"properties": {"a": {}}, **schema})


def test_the_first_of_several_types_counts() -> None:
    variants = [{"properties": {"a": {"type": kind}}} for kind in ("number", "string")]
    assert paths({"anyOf": variants, "items": {"allOf": variants[1:]}}) == {"a": "string"}
    assert paths({"anyOf": variants}) == {"a": "number"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "is an object"),
        ("{}", "no properties"),
        ('{"properties": []}', "no properties"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_invalid_json_schemas_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputUnfit, match=reason):
        parse_json_schema(text, "left")


SKOS = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <urn:x:> .
:cat a skos:Concept ; skos:prefLabel "Katze"@de ; skos:altLabel "кошка"@ru ; skos:broader :pet .
:pet a skos:Concept ; skos:prefLabel "Haustier"@de ; skos:broader :cat .
"""
OWL = """<?xml version="1.0"?>{doctype}
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:owl="http://www.w3.org/2002/07/owl#">
<owl:Ontology rdf:about="urn:x"><owl:imports rdf:resource="http://127.0.0.1:9/none.owl"/></owl:Ontology>
<owl:ObjectProperty rdf:about="urn:x#part_of"/>
<owl:Class rdf:about="urn:x#hand"><rdfs:label>{label}</rdfs:label>
 <rdfs:subClassOf><owl:Restriction><owl:onProperty rdf:resource="urn:x#part_of"/>
 <owl:someValuesFrom rdf:resource="urn:x#arm"/></owl:Restriction></rdfs:subClassOf></owl:Class>
<owl:Class rdf:about="urn:x#arm"><rdfs:subClassOf rdf:resource="urn:x#elsewhere"/></owl:Class>
<owl:Class rdf:about="urn:x#old"><owl:deprecated>true</owl:deprecated></owl:Class>
</rdf:RDF>"""


def test_skos_has_labels_in_any_script_and_can_be_cyclic() -> None:
    concepts = parse_ontology(SKOS, "left")
    assert concepts["urn:x:cat"].labels == ("Katze", "кошка")
    assert concepts["urn:x:cat"].preferred == 1
    assert concepts["urn:x:cat"].parents == ["urn:x:pet"]
    assert concepts["urn:x:pet"].parents == ["urn:x:cat"]


def test_the_number_of_labels_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound covers all concepts: the work grows with the square of their labels."""
    concepts = parse_ontology(SKOS, "left")
    assert check_labels(concepts, "left") == 3
    monkeypatch.setattr(ontologies, "MAX_COMPARED", 2)
    with pytest.raises(InputUnfit, match="left has 3 labels; 2 are compared at most"):
        check_labels(concepts, "left")


def test_owl_has_parts_and_imports_are_not_fetched() -> None:
    concepts = parse_ontology(OWL.format(doctype="", label="Hand"), "left")
    assert set(concepts) == {"urn:x#hand", "urn:x#arm"}
    assert concepts["urn:x#hand"].wholes == ["urn:x#arm"]
    assert concepts["urn:x#arm"].labels == ("arm",)
    assert concepts["urn:x#arm"].parents == []


NESTED = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY x SYSTEM "file:///etc/passwd">',
        '<!ENTITY x PUBLIC "-" "http://127.0.0.1:9/x">',
        '<!ENTITY % x SYSTEM "http://127.0.0.1:9/x">',
        f'<!ENTITY e0 "aaaaaaaaaa">{NESTED}<!ENTITY x "&e11;">',
    ],
)
def test_external_and_nested_entities_are_refused(declaration: str) -> None:
    document = OWL.format(doctype=f"<!DOCTYPE rdf:RDF [{declaration}]>", label="&x;")
    with pytest.raises(InputUnfit, match="refer to no other"):
        parse_ontology(document, "left")


def test_entities_for_a_text_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    document = OWL.format(doctype="<!DOCTYPE rdf:RDF [<!ENTITY x 'Hand'>]>", label="&x;")
    assert parse_ontology(document, "left")["urn:x#hand"].labels == ("Hand",)
    monkeypatch.setattr(ontologies, "MAX_TEXT", len(document) + 3)
    with pytest.raises(InputUnfit, match="too long"):
        parse_ontology(document, "left")


def test_the_number_of_entities_is_bounded() -> None:
    def document(count: int) -> str:
        declarations = "".join(f"<!ENTITY x{n} 'Hand'>" for n in range(count))
        return OWL.format(doctype=f"<!DOCTYPE rdf:RDF [{declarations}]>", label="&x0;&x7;")

    concepts = parse_ontology(document(ontologies.MAX_ENTITIES), "left")
    assert concepts["urn:x#hand"].labels == ("HandHand",)
    with pytest.raises(InputUnfit, match="1,000 entities at most"):
        parse_ontology(document(ontologies.MAX_ENTITIES + 1), "left")


def test_expanded_entities_count_towards_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    declarations = "<!ENTITY x 'Hand'><!ENTITY xy 'Foot and hand'>"
    document = OWL.format(doctype=f"<!DOCTYPE rdf:RDF [{declarations}]>", label="&x;&xy;&x;&amp;")
    monkeypatch.setattr(ontologies, "MAX_TEXT", len(document) + 2 * 4 + 13)
    assert parse_ontology(document, "left")["urn:x#hand"].labels == ("HandFoot and handHand&",)
    monkeypatch.setattr(ontologies, "MAX_TEXT", len(document) + 2 * 4 + 12)
    with pytest.raises(InputUnfit, match="too long"):
        parse_ontology(document, "left")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<rdf:RDF", "not xml"),
        ("", "no OWL classes"),
        ("this is no turtle", "not turtle"),
        ('{"@context": "http://127.0.0.1:9/x"}', "JSON-LD is not read"),
    ],
)
def test_invalid_ontologies_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputUnfit, match=reason):
        parse_ontology(text, "left")


DEFAULTS = '<!DOCTYPE rdf:RDF [<!ATTLIST owl:Class rdfs:comment CDATA "Hand">]>'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-7"])
def test_default_attributes_of_elements_are_refused(encoding: str) -> None:
    document = OWL.format(doctype=DEFAULTS, label="Hand")
    with pytest.raises(InputUnfit, match="declares attributes"):
        parse_ontology(document.replace('"1.0"', f'"1.0" encoding="{encoding}"'), "left")
    with pytest.raises(InputUnfit, match=r"is not|declares attributes"):
        parse_ontology(document.encode(encoding).decode("latin-1"), "left")


CLASSES = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:owl="http://www.w3.org/2002/07/owl#" xmlns:x="{0}" xml:base="{1}">{2}</rdf:RDF>"""
LONG_IRI = "x" * 1_000


@pytest.mark.parametrize(
    ("form", "statement"),
    [
        ("@prefix : <{0}> . {2}", ":{n} a <http://www.w3.org/2002/07/owl#Class> . "),
        ("@base <{1}> . {2}", "<#{n}> a <http://www.w3.org/2002/07/owl#Class> . "),
        (
            "@prefix : <{0}> . {2}",
            '<urn:{n}> a <http://www.w3.org/2002/07/owl#Class> ; <urn:p> "1"^^:a . ',
        ),
        (CLASSES, '<owl:Class rdf:about="#{n}"/>'),
        (CLASSES, '<owl:Class rdf:about="urn:{n}"><x:a>1</x:a></owl:Class>'),
    ],
)
def test_the_expansion_of_prefixes_and_bases_is_bounded(
    monkeypatch: pytest.MonkeyPatch, form: str, statement: str
) -> None:
    monkeypatch.setattr(ontologies, "MAX_TERMS", 40_000)
    statements = "".join(statement.format(n=n) for n in range(100))
    assert len(parse_ontology(form.format("urn:x:", "http://x/", statements), "left")) == 100
    with pytest.raises(InputUnfit, match="terms have 40,000 characters at most"):
        parse_ontology(form.format(f"urn:{LONG_IRI}:", f"http://x/{LONG_IRI}/", statements), "left")


def test_a_number_is_not_expanded() -> None:
    number = '"1E5000"^^<http://www.w3.org/2001/XMLSchema#decimal>'
    document = f"{SKOS} :pet skos:altLabel {number} ."
    assert parse_ontology(document, "left")["urn:x:pet"].labels == ("Haustier", "1E5000")


def test_the_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ontologies, "MAX_TEXT", 10)
    with pytest.raises(InputUnfit, match="10 characters at most"):
        parse_ontology(SKOS, "left")
    monkeypatch.setattr(ontologies, "MAX_TEXT", 10_000)
    monkeypatch.setattr(ontologies, "MAX_CONCEPTS", 1)
    with pytest.raises(InputUnfit, match="1 concepts at most"):
        parse_ontology(SKOS, "left")
