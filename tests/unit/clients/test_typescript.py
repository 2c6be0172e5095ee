"""The types of the npm client and of a database, checked by the TypeScript compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.api.openapi.database_document import database_document
from app.commands.typescript import declarations
from mediator.schema.parse import parse_schema
from tests.unit.http.test_database_document import DOCUMENT

HERE = Path(__file__).parent / "typescript"
CLIENT = Path(__file__).parents[3] / "clients" / "js" / "src"
OPTIONS = ("--noEmit", "--strict", "--target", "es2022", "--module", "nodenext")


def declare_classes(**classes: dict[str, Any]) -> str:
    class_schemas = {name: {"fields": fields} for name, fields in classes.items()}
    schema = parse_schema("shop", {"classes": class_schemas})
    return declarations("shop", database_document("shop", [*schema.classes.values()]))


def test_types_of_classes_do_not_collide() -> None:
    types = declare_classes(products={}, new_products={}, shop={}, a_1={}, a1={}, **{"class": {}})
    names = [line.split()[2] for line in types.splitlines() if line.startswith("export interface")]
    assert len(names) == len(set(names))
    assert {"Shop", "Shop_", "Products", "NewProducts", "NewProducts_", "Class"} <= set(names)


def test_text_of_the_schema_cannot_end_a_comment() -> None:
    hostile = {"type": "string", "default": "*/ evil(); /*", "enum": ["*/ evil(); /*", "'\"\n"]}
    types = declare_classes(products={"name": hostile})
    for line in types.splitlines():
        if line.lstrip().startswith("/**"):
            assert line.endswith(" */")
            assert line.count("*/") == 1
    assert '"*/ evil(); /*" | "\'\\"\\n"' in types


@pytest.mark.typescript
def test_programs_compile_and_their_mistakes_are_found(tmp_path: Path) -> None:
    """Each mistake in `usage.ts` is expected: an undetected one is an error as well."""
    folder = tmp_path / "tests" / "unit" / "clients" / "typescript"
    shutil.copytree(CLIENT, tmp_path / "clients" / "js" / "src")
    folder.mkdir(parents=True)
    shutil.copy(HERE / "usage.ts", folder)
    (folder / "shop.d.ts").write_text(declarations("shop", DOCUMENT))
    node, compiler = shutil.which("node"), HERE / "node_modules" / "typescript" / "bin" / "tsc"
    assert node is not None
    process = subprocess.run(
        [node, compiler, *OPTIONS, folder / "usage.ts"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
