"""Revisions of the catalogue's tables: the present one, and the one this code needs.

A revision is a step from one set of tables to the next (`mediator.catalogue.migrations`). All steps
of an upgrade are one transaction of PostgreSQL under an advisory lock: replicas that start together
wait for the first of them and then have nothing to do, and a process that is killed leaves the
former tables. The lock is taken before the revision is read, so no replica acts on an old one.

Code meets a catalogue of another revision in a rolling upgrade. A catalogue that is *behind* is
upgraded. One that is *ahead* has revisions which this code lacks; the catalogue records of each
whether it is *additive*. If all of them are, this code runs on it, else it refuses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select, text

from mediator.base.errors import Conflict
from mediator.catalogue.tables import SCHEMA, revisions

__all__ = ["CatalogueMismatch", "Compatibility", "Revision", "Revisions"]

_SCRIPTS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = 7_306_842_011_356
_HEAD: Final = "head"


class CatalogueMismatch(Conflict):
    """This code cannot work with the catalogue's tables."""


class Compatibility(Enum):
    """Whether this code can run on a catalogue.

    AHEAD: only by additive revisions, so it can. INCOMPATIBLE: by at least one other revision.
    """

    EMPTY = auto()
    BEHIND = auto()
    CURRENT = auto()
    AHEAD = auto()
    INCOMPATIBLE = auto()


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision: its id, its purpose, and whether older code can run on it."""

    id: str
    about: str
    additive: bool


class Revisions:
    """The revisions that this code has, and those in the directories `more`.

    Every method that takes a connection must be called in one of its transactions.
    """

    def __init__(self, *more: Path) -> None:
        self._directories = (_SCRIPTS / "versions", *more)

    @cached_property
    def _script(self) -> ScriptDirectory:
        return _script_directory(self._directories)

    @property
    def newest(self) -> str:
        """The revision that this code needs."""
        return str(self._script.get_current_head())

    def known(self) -> list[Revision]:
        """Return all revisions, oldest first."""
        scripts = [*self._script.walk_revisions()][::-1]
        return [Revision(s.revision, s.doc, s.module.additive) for s in scripts]

    def current(self, connection: Connection) -> str | None:
        """Return the revision of a catalogue, or None."""
        options = {"version_table_schema": SCHEMA}
        return MigrationContext.configure(connection, opts=options).get_current_revision()

    def compatibility(self, connection: Connection) -> Compatibility:
        current = self.current(connection)
        if current is None:
            return Compatibility.EMPTY
        known_ids = {revision.id for revision in self.known()}
        if current in known_ids:
            return Compatibility.CURRENT if current == self.newest else Compatibility.BEHIND
        applied = connection.execute(select(revisions.c.revision, revisions.c.additive))
        unknown = [additive for revision, additive in applied if revision not in known_ids]
        is_compatible = unknown and all(unknown)
        return Compatibility.AHEAD if is_compatible else Compatibility.INCOMPATIBLE

    def check(self, connection: Connection) -> None:
        """Raise `CatalogueMismatch` if this code cannot run on the present catalogue."""
        compatibility = self.compatibility(connection)
        if compatibility is Compatibility.INCOMPATIBLE:
            raise self._too_new(connection)
        if compatibility not in (Compatibility.CURRENT, Compatibility.AHEAD):
            raise CatalogueMismatch(
                f"The catalogue has revision {self.current(connection)}, this version of Portolan"
                f" needs {self.newest}: run `portolan catalogue upgrade`."
            )

    def upgrade(self, connection: Connection) -> None:
        """Upgrade a catalogue to the newest revision; one that is ahead is unchanged.

        Raises:
            CatalogueMismatch: It is incompatible, or other software created its tables.
        """
        # Before the revision is read: another replica may be upgrading it.
        _lock(connection)
        compatibility = self.compatibility(connection)
        if compatibility is Compatibility.INCOMPATIBLE:
            raise self._too_new(connection)
        if compatibility is Compatibility.EMPTY and inspect(connection).get_table_names(SCHEMA):
            raise CatalogueMismatch(
                f"The schema {SCHEMA} has tables that no revision of the catalogue has created."
            )
        if compatibility in (Compatibility.EMPTY, Compatibility.BEHIND):
            command.upgrade(self._config(connection), _HEAD)

    def downgrade(self, connection: Connection, to: str) -> None:
        """Take a catalogue back to an older revision; data of the later ones is lost."""
        _lock(connection)
        self._check_downgrade(self.current(connection), to)
        command.downgrade(self._config(connection), to)

    def sql(self, current: str | None, to: str | None = None) -> str:
        """Return the statements of an upgrade, or of a downgrade `to` a revision, as text."""
        output = StringIO()
        config = self._config(output=output)
        if to is None:
            command.upgrade(config, f"{current}:{_HEAD}" if current else _HEAD, sql=True)
        else:
            self._check_downgrade(current, to)
            command.downgrade(config, f"{current}:{to}", sql=True)
        return output.getvalue()

    def _check_downgrade(self, current: str | None, to: str) -> None:
        ids = [revision.id for revision in self.known()]
        if current not in ids or to not in ids[: ids.index(current) + 1]:
            raise CatalogueMismatch(
                f"There is no way back from revision {current} to {to};"
                f" this version of Portolan knows {', '.join(ids)}."
            )

    def _too_new(self, connection: Connection) -> CatalogueMismatch:
        return CatalogueMismatch(
            f"The catalogue has revision {self.current(connection)}, and this version of Portolan"
            f" knows none beyond {self.newest}: run a newer version, or take the catalogue back by"
            " `portolan catalogue downgrade` of the newer one."
        )

    def _config(
        self, connection: Connection | None = None, output: StringIO | None = None
    ) -> Config:
        config = _alembic_config(self._directories, output)
        config.attributes["connection"] = connection
        return config


@cache
def _script_directory(directories: Sequence[Path]) -> ScriptDirectory:
    """Read the scripts of revisions, once in a process, which opens several catalogues."""
    return ScriptDirectory.from_config(_alembic_config(directories))


def _alembic_config(directories: Sequence[Path], output: StringIO | None = None) -> Config:
    config = Config(output_buffer=output) if output else Config()
    config.set_main_option("script_location", _joined_paths([_SCRIPTS]))
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", _joined_paths(directories))
    return config


def _lock(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    # A lock request that waits for a user of the table makes all later users wait as well.
    connection.execute(text("SET LOCAL lock_timeout = '10s'"))


def _joined_paths(paths: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, paths)).replace("%", "%%")
