"""The documentation names everything that exists, and its statements are true."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from app.api.openapi.components import COMPONENTS
from app.cli import COMMANDS
from app.http.prefer import PREFERENCES
from benchmarks.harness.runner import available
from benchmarks.readme import FIGURES, README
from docs.facts import NO_PROSE, FactsTable, Row
from docs.reference import generated
from mediator.placement.advice import advise
from mediator.placement.scores import Kind
from mediator.query.filter_parser import OPERATORS
from mediator.query.parser import parse_query_document
from mediator.schema import limits
from mediator.schema.annotations import Statistic
from mediator.schema.parse import RESERVED_CLASSES, SCHEMA, parse_schema
from mediator.schema.tree import Mode
from mediator.schema.types import FieldType
from mediator.schema.validation import json_schema_of
from mediator.stores.port import AccessPath

ROOT = README.parent
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
METHODS = ("get", "put", "post", "patch", "delete")
NAMED_HEADERS = [
    parameter["name"]
    for parameter in COMPONENTS["parameters"].values()
    if parameter["in"] == "header"
]
HOSTS = {
    "www.rfc-editor.org",
    "paper.example",
    "cache.example",
    "collector.example",
    "db.example",
    "stock.example",
    "127.0.0.1",
}
"""Where pages may link to: standards, names that exist nowhere, and the reader's own machine."""

SOURCES = {"github.com", "docs.dapr.io", "docs.postgrest.org", "hasura.io"}
"""Other pages that the comparison may link to: the sources about other products."""

CODE = (".py", ".lua")
AMERICAN = r"(?i)\b\w*(?:behavior|colors?\b|favor|center\b|\wliz[ei]|miz[ei]|niz[ei])\w*"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def rows(name: str, section: str = "") -> list[list[str]]:
    """Return the cells of all table rows of a page, or of those after a heading."""
    text = page(name)
    assert section in text
    lines = [line for line in text[text.index(section) :].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def row_of(name: str, text: str, section: str = "") -> list[str]:
    """Return the first row whose first cell is, or lists, some code."""
    matches = [row for row in rows(name, section) if f"`{text}`" in row[0]]
    assert matches, f"docs/{name} has no row for {text}"
    return matches[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("name", [*COMPONENTS["headers"], *NAMED_HEADERS])
def test_every_header_field_has_its_row(name: str) -> None:
    row_of("data-api.md", name, "## Header fields")


@pytest.mark.parametrize("name", PREFERENCES)
def test_every_preference_is_explained(name: str) -> None:
    assert f"`{name}" in page("data-api.md")


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_of_filters_has_its_row(operator: str) -> None:
    row_of("queries.md", operator, "## Filters")


@pytest.mark.parametrize("access", AccessPath)
def test_every_access_has_its_row(access: AccessPath) -> None:
    row_of("queries.md", access, "## How a query is carried out")


def test_printed_queries_are_queries() -> None:
    texts = {key: {"type": "string"} for key in ("firstname", "lastname", "country", "nick")}
    numbers = {key: {"type": "integer"} for key in ("year", "hits")}
    employer = {"works_for": {"type": "reference", "to": "companies"}}
    classes = {
        "players": {"fields": {**texts, **numbers, **employer}},
        "companies": {"fields": {"name": {"type": "string"}}},
        "matches": {
            "fields": {
                "player": {"type": "reference", "to": "players"},
                "goals": {"type": "integer"},
                "year": {"type": "integer"},
            }
        },
    }
    schema = parse_schema("club", {"classes": classes})
    for block in blocks(page("queries.md"), "json"):
        parse_query_document(json.loads(block), schema, "players")


@pytest.mark.parametrize(
    ("section", "word"),
    [
        *(("## The database", mode) for mode in Mode),
        *(("## Types", type_) for type_ in FieldType),
        *(("### Metrics", shape) for shape in ("linear", "step", "sigmoid")),
    ],
)
def test_every_mode_type_and_shape_has_its_row(section: str, word: str) -> None:
    row_of("schema.md", word, section)


@pytest.mark.parametrize("word", [*get_args(Statistic), *sorted(RESERVED_CLASSES)])
def test_every_other_word_of_a_schema_is_explained(word: str) -> None:
    assert f"`{word}`" in page("schema.md")


def schema_keys(document: Any) -> set[str]:
    """Return every key that the author of a schema can write."""
    if isinstance(document, list):
        return {key for item in document for key in schema_keys(item)}
    if not isinstance(document, dict):
        return set()
    return set(document.get("properties", {})).union(*map(schema_keys, document.values()))


def test_every_key_of_a_schema_is_explained() -> None:
    text = page("schema.md")
    words = set(re.findall(r"[\w]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert schema_keys(json_schema_of(SCHEMA)) <= words


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_choice_has_its_row(kind: str) -> None:
    row_of("placement.md", kind)


@pytest.mark.parametrize("name", limits.__all__)
def test_every_limit_is_named_with_its_value(name: str) -> None:
    lines = [line for line in page("limits.md").splitlines() if f"`{name}`" in line]
    assert lines
    value = getattr(limits, name)
    if name not in ("INTEGER_MIN", "INTEGER_MAX"):
        assert f"{abs(value):,}" in lines[0]


def test_every_command_has_its_row() -> None:
    cells = " ".join(row[0] for row in rows("operations.md", "## Commands"))
    for name in COMMANDS:
        assert f"`portolan {name}" in cells


def test_every_dependency_is_named_with_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(line for extra in extras for line in extra)]
    names = {
        name.lower()
        for row in rows("dependencies.md")
        for cell in row[:-1]
        for name in re.findall(r"[A-Za-z][\w-]+", cell)
    }
    assert {re.split(r"[\[=~<>;! ]", line)[0].lower() for line in requirements} <= names


def test_the_architecture_page_names_files_that_exist() -> None:
    paths = re.findall(r"`((?:app|mediator|sketch|benchmarks)/[\w/.]+)`", page("architecture.md"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("package", ["app", "mediator", "sketch"])
def test_the_architecture_page_has_the_layers_that_are_enforced(package: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(
        contract["layers"]
        for contract in contracts["contracts"]
        if contract.get("containers") == [package]
    )
    enforced = [set(re.findall(r"\w+", layer)) for layer in layers]
    _, _, section = page("architecture.md").partition(f"| `{package}`, from the top")
    rows_ = re.findall(r"^\| (`.+?) \|", section.partition("\n\n")[0], re.MULTILINE)
    printed = [set(re.findall(r"`(\w+)`", row)) for row in rows_]
    assert set().union(*printed) == set().union(*enforced)
    order = {name: position for position, layer in enumerate(enforced) for name in layer}
    assert [min(order[name] for name in row) for row in printed] == sorted(
        min(order[name] for name in row) for row in printed
    )


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked_file = file.parent / path if path else file
        assert linked_file.exists(), target
        assert not anchor or anchor in anchors(linked_file.read_text()), target


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_pages_name_no_hosts_but_standards_and_examples(file: Path) -> None:
    hosts = re.findall(r"\b\w+://(?:[^/\s@]*@)?([\w.-]+\.[\w-]+)", file.read_text())
    assert set(hosts) <= (HOSTS | SOURCES if file.name == "comparison.md" else HOSTS)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_the_english_is_british(file: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", file.read_text(), flags=re.DOTALL)
    assert re.findall(AMERICAN, prose) == []


def test_every_page_is_reached_from_the_readme() -> None:
    text = README.read_text() + page("papers/index.md")
    assert [file.name for file in PAGES[1:] if f"/{file.name}" not in text.replace("(", "/")] == []


def test_the_first_ten_lines_of_the_readme_show_how_to_run_it() -> None:
    start = "\n".join(README.read_text().splitlines()[:10])
    for word in ("make run", "make test", "Python 3.11", "JDK", "Maven"):
        assert word in start


@pytest.mark.parametrize("file", [README, ROOT / "docs" / "schema.md"], ids=lambda file: file.name)
def test_printed_schemas_are_schemas(file: Path) -> None:
    parse_schema("news", json.loads(blocks(file.read_text(), "json")[0]))


def test_the_worked_example_is_answered_with_the_printed_scores() -> None:
    text = page("placement.md")
    scores = advise(json.loads(blocks(text, "json")[0]))["scores"]
    for line, node in (
        ("`hits`", "articles.hits"),
        ("`title`, `body`", "articles.title"),
        ("`articles`", "articles"),
    ):
        _, a, b = next(row for row in rows("placement.md") if row[0] == line)
        for cell, system in ((a, "A"), (b, "B")):
            score = float(cell.replace("*", "").split("= ")[-1])
            assert scores[node][system] == pytest.approx(score, abs=1e-4)


def test_the_picture_of_placement_shows_the_numbers_of_the_worked_example() -> None:
    scores = advise(json.loads(blocks(page("placement.md"), "json")[0]))["scores"]
    picture = page("pictures/placement.svg")
    for node in ("articles.hits", "articles.title"):
        for system in "AB":
            assert f">{scores[node][system]:g}<" in picture


def test_every_claim_about_another_project_leads_to_a_source_that_is_used() -> None:
    claims, _, sources = page("comparison.md").partition("## Sources")
    cited = {
        source
        for group in re.findall(r"\[([A-Z]\d(?:, [A-Z]\d)*)\]", claims)
        for source in group.split(", ")
    }
    assert cited == set(re.findall(r"^\| ([A-Z]\d) \| \[[^\]]+\]\(https://", sources, re.MULTILINE))
    widths = {len(row) for row in rows("comparison.md", "## By feature") if row[0] != "reference"}
    assert widths == {8, 3}


@pytest.mark.parametrize(
    ("feature", "gap"),
    [
        ("text search", "- Text search:"),
        ("data moved while in use", "- Existing data does not move"),
        ("rights of single objects", "- Rules for single objects"),
    ],
)
def test_the_comparison_lists_the_gaps_of_the_readme(feature: str, gap: str) -> None:
    [ours] = [row[1] for row in rows("comparison.md", "## By feature") if row[0] == feature]
    assert (ours == "**not yet**") is (gap in README.read_text())


def plain(code: str) -> str:
    """Code without differences of indentation and spacing."""
    return "\n".join(line.strip() for line in code.splitlines() if line.strip())


@pytest.mark.parametrize(
    "file", [file for file in PAGES if file.name.startswith("add-")], ids=lambda file: file.name
)
def test_worked_examples_print_the_files_that_are_tested(file: Path) -> None:
    folders = [ROOT / name for name in ("examples", "mediator", "spark_jobs", "tests")]
    code = [path for folder in folders for path in folder.rglob("*") if path.suffix in CODE]
    sources = [plain(source.read_text()) for source in code]
    examples = [
        block for language in ("python", "lua") for block in blocks(file.read_text(), language)
    ]
    examples = [
        block for block in examples if not block.startswith("prepared = ")
    ]  # run by its test
    assert examples
    for block in examples:
        assert any(plain(block) in source for source in sources), block


def test_every_file_that_knows_an_operator_is_named_where_one_is_added() -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in ("app", "mediator", "spark_jobs", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (*CODE, ".md") and "bit_xor" in path.read_text().lower()
    }
    listed_files = {row[0].strip("`") for row in rows("add-operator.md")[1:]}
    assert files - {"docs/add-operator.md"} == listed_files


def test_generated_pages_are_up_to_date() -> None:
    for file, text in generated().items():
        assert file.read_text() == text, f"make reference updates docs/{file.name}"


def test_every_benchmark_without_a_record_has_its_bar() -> None:
    names = {row[0].strip("`") for row in rows("benchmarks.md", "## Bars of those")[1:]}
    assert names == set(available()) - {file.stem for file in FIGURES.glob("*.json")}


def test_a_table_of_facts_keeps_the_prose_of_its_page_and_nothing_else() -> None:
    rows_ = [Row("`a`", ("1",), "from the code"), Row("`b`", ("2",), "from the code")]
    table = FactsTable("page.md", "## Here", ("name", "default", "meaning"), rows_)
    page_ = "## Here\n\n| name |\n|---|\n| `b` | 9 | by hand |\n| `gone` | 3 | |\n\nRest\n"
    assert table.fill(page_) == (
        "## Here\n\n| name | default | meaning |\n|---|---|---|\n"
        "| `a` | 1 | from the code |\n| `b` | 2 | by hand |\n\nRest\n"
    )


def test_every_kind_of_problem_is_explained() -> None:
    assert NO_PROSE not in page("problems.md")
