"""Specifications of `matching.schema`: the two sides, background knowledge and feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import (
    ClassSource,
    FileSource,
    Source,
    Specification,
    SpecInvalid,
    Text,
    branch_of_source,
)

__all__ = [
    "FEEDBACK",
    "Assignment",
    "BackgroundOntology",
    "Decision",
    "Form",
    "SchemaMatchingSpec",
    "SchemaSide",
]

FEEDBACK: Final = "feedback"
_MAX_BACKGROUNDS: Final = 8
_MAX_DECISIONS: Final = 10_000


class Assignment(StrEnum):
    """How often an element can be in the result."""

    ONE_TO_ONE = "one_to_one"
    MANY_TO_MANY = "many_to_many"


class Form(StrEnum):
    """The form of a side."""

    TABLE = "table"
    JSON_SCHEMA = "json_schema"
    ONTOLOGY = "ontology"


class SchemaSide(Specification):
    """One of the two schemas; exactly one member must be set.

    Attributes:
        table: A class or a table: its columns are matched, by names, types and values.
        json_schema: Rows with `text`, which together are a JSON schema.
        ontology: Rows with `text`, which together are RDF/XML or Turtle: its concepts are matched.
    """

    table: Source | None = None
    json_schema: Source | None = None
    ontology: Source | None = None

    @property
    def form(self) -> Form:
        return next(form for form in Form if getattr(self, form) is not None)

    @property
    def source(self) -> FileSource | ClassSource:
        source: FileSource | ClassSource = getattr(self, self.form)
        return source

    @property
    def form_count(self) -> int:
        return sum(getattr(self, form) is not None for form in Form)


class BackgroundOntology(Specification):
    """An ontology that is background knowledge, not a side.

    Attributes:
        ontology: Rows with `text`, which together are RDF/XML or Turtle.
    """

    ontology: Source


def _branch(document: Any) -> str:
    ontology = isinstance(document, dict) and "ontology" in document
    if ontology or isinstance(document, BackgroundOntology):
        return "(ontology)"
    return branch_of_source(document)


def _number(document: Any) -> str:
    return "(list)" if isinstance(document, list | tuple) else "(one)"


_BackgroundSource: TypeAlias = Annotated[
    Annotated[FileSource, Tag("(file)")]
    | Annotated[ClassSource, Tag("(class)")]
    | Annotated[BackgroundOntology, Tag("(ontology)")],
    Discriminator(_branch),
]
_BackgroundList: TypeAlias = Annotated[
    tuple[_BackgroundSource, ...], Field(min_length=1, max_length=_MAX_BACKGROUNDS)
]
_Background: TypeAlias = Annotated[
    Annotated[_BackgroundSource, Tag("(one)")] | Annotated[_BackgroundList, Tag("(list)")],
    Discriminator(_number),
]


class Decision(Specification):
    """A user's decision about a pair.

    Attributes:
        left: An element: the name of a column, the path of a property, joined by dots, or the IRI
            of a concept.
    """

    left: Text
    right: Text
    accepted: bool


class SchemaMatchingSpec(Specification):
    """Two schemas, background knowledge and feedback.

    Attributes:
        background: Rows `source`, `target`, `relation`, `confidence`: relations of terms; or an
            ontology; or several of these.
        feedback: Rows `left`, `right`, `accepted`: decisions of users, as in `decisions`.
        min_confidence: The minimum confidence of the correspondences in the result.
        max_path_length: Maximum relations of a path in the background graph.
        min_path_score: The minimum score of such a path.
    """

    left: SchemaSide
    right: SchemaSide
    background: _Background | None = None
    feedback: Source | None = None
    decisions: Annotated[tuple[Decision, ...], Field(max_length=_MAX_DECISIONS)] = ()
    assignment: Assignment = Assignment.ONE_TO_ONE
    min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.5
    max_path_length: Annotated[int, Field(ge=1, le=4)] = 2
    min_path_score: Annotated[float, Field(ge=0, le=1)] = 0.6

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, side in (("left", self.left), ("right", self.right)):
            if side.form_count != 1:
                reason = "one of table, json_schema and ontology is expected"
                raise SpecInvalid(f"/{name}", reason)
        forms = {self.left.form, self.right.form}
        if Form.ONTOLOGY in forms and len(forms) > 1:
            raise SpecInvalid("/right", "an ontology is matched with an ontology only")
        return self

    @property
    def inputs(self) -> tuple[Input, ...]:
        inputs = []
        for name, side in (("left", self.left), ("right", self.right)):
            fields = None if side.form is Form.TABLE else ("text",)
            inputs.append(Input(name, side.source, fields))
        inputs += self.statements.values()
        inputs += self.ontologies.values()
        if self.feedback is not None:
            inputs.append(Input(FEEDBACK, self.feedback, ("left", "right", "accepted")))
        return tuple(inputs)

    @property
    def statements(self) -> Mapping[str, Input]:
        """The inputs of the background whose rows are statements, by name."""
        columns = ("source", "target", "relation", "confidence")
        return {
            name: Input(name, source, columns)
            for name, source in self._named_backgrounds
            if not isinstance(source, BackgroundOntology)
        }

    @property
    def ontologies(self) -> Mapping[str, Input]:
        """The inputs of the background that are ontologies, by name."""
        return {
            name: Input(name, source.ontology, ("text",))
            for name, source in self._named_backgrounds
            if isinstance(source, BackgroundOntology)
        }

    @property
    def _named_backgrounds(
        self,
    ) -> Sequence[tuple[str, FileSource | ClassSource | BackgroundOntology]]:
        if self.background is None:
            return ()
        if not isinstance(self.background, tuple):
            return (("background", self.background),)
        return [(f"background {n}", source) for n, source in enumerate(self.background, 1)]
