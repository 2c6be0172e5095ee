"""Authorisation for runs, by the permissions for the classes of their jobs.

A run shows values of the classes that it reads: in its job, its progress, its errors, its results.
To see it, a principal needs the permission to read all objects of these classes, as they are and as
they were when the run was submitted. To submit, cancel or resume it, the principal also needs the
permission to write its target class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from app.api.resources import Directory
from mediator.access.authorisation import Access
from mediator.access.model import Scope
from mediator.base.errors import Forbidden
from mediator.catalogue.runs import StoredRun
from spark_jobs.runner.job import STORED_VERSION, Job

__all__ = ["Permission", "RunRights"]

Permission: TypeAlias = Callable[[], bool]
"""Whether an earlier permission still holds."""


@dataclass(frozen=True, slots=True)
class RunRights:
    """Authorises requests for runs; all methods raise the errors of `Access.require`."""

    _directory: Directory

    async def require_submission(self, access: Access, database: str, job: Job) -> None:
        for class_name in job.reads:
            await self._require(access, Scope.READ, database, class_name)
            access.require_all(database, class_name)
        if job.into is not None:
            await self._require_write(access, database, job.into.class_name)

    async def require_view(self, access: Access, run: StoredRun) -> Permission:
        """Authorise viewing; return a function that repeats the check later."""
        reads = _stored_reads(access, run)
        for class_name in reads:
            await self._require(access, Scope.READ, run.database, class_name)
            if not access.may_read_all_since(run.database, class_name, run.created):
                detail = (
                    f"Objects of {class_name} have owners, or had some when the run was submitted,"
                    " or the class was dropped: only its administrators may see the run."
                )
                raise Forbidden(detail, extra={"scope": Scope.ADMIN.value})
        return lambda: all(
            access.may_read_all_since(run.database, name, run.created) for name in reads
        )

    async def require_control(self, access: Access, run: StoredRun) -> None:
        await self.require_view(access, run)
        if writes := run.document.get("writes"):
            await self._require_write(access, run.database, writes)

    async def _require_write(self, access: Access, database: str, class_name: str) -> None:
        await self._require(access, Scope.WRITE, database, class_name)
        access.require_all(database, class_name)

    async def _require(self, access: Access, scope: Scope, database: str, class_name: str) -> None:
        access.require(scope, database, class_name)
        # Another replica may just have created the class, with owners.
        await self._directory.refresh_if_missing(database, class_name)


def _stored_reads(access: Access, run: StoredRun) -> list[str]:
    """Return the classes that a run reads; none if its document has another version.

    Only administrators of the database may see such a run.
    """
    if run.document.get("version") != STORED_VERSION:
        access.require(Scope.ADMIN, run.database)
        return []
    reads: list[str] = run.document["reads"]
    return reads
