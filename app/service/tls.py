"""TLS of a port: a certificate and its key, in files that are reloaded when they are renewed.

Renewed files are loaded into a new context, which replaces the old one atomically: whatever happens
to the files while they are read, a connection gets a matching certificate and key, new or old. Open
connections do not change.

Kubernetes renews a mounted Secret by pointing the link ``..data``, through which the files are
reached, to another directory. So files are compared by inode, not only by time.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from cryptography import x509

from app.settings.main import HttpSettings, MissingSetting
from mediator.base.periodic_tasks import PeriodicTask

__all__ = ["REREAD_S", "Certificate", "certificates"]

REREAD_S: Final = 60.0
"""Seconds between checks of the files."""

_log = logging.getLogger("portolan.tls")


@dataclass(slots=True)
class Certificate:
    """The certificate of a port.

    Attributes:
        port: The name of the port: ``data`` or ``admin``.
        chain: File with the certificate and its intermediate certificates (PEM).
        key: File with its key (PEM, not encrypted).
    """

    port: str
    chain: Path
    key: Path
    _context: ssl.SSLContext | None = None
    _newest: ssl.SSLContext | None = None
    _loaded_versions: tuple[int, ...] = field(default=())

    @property
    def context(self) -> ssl.SSLContext:
        """The context of connections; `reread` updates it from the files.

        Raises:
            MissingSetting: The files cannot be used; the message states the reason.
        """
        if self._context is None:
            self._loaded_versions = self._file_versions()
            self._context = self._newest = self.load()
            self._context.sni_callback = self._use_newest
            self._warn(self.ends)
        return self._context

    @property
    def ends(self) -> datetime:
        """When the certificate expires.

        Raises:
            MissingSetting: The file has no certificate.
        """
        try:
            return x509.load_pem_x509_certificate(self.chain.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None

    def check(self) -> datetime:
        """Load the certificate, and return when it expires; raise the errors of `context`."""
        self.load()
        return self.ends

    async def reread(self) -> None:
        """Reload the files if they have changed; if they are unusable, keep the old context."""
        try:
            # Before the files are read: the next call then detects changes during the read.
            versions = self._file_versions()
            if versions == self._loaded_versions:
                return
            context, ends = self.load(), self.ends
        except MissingSetting as error:
            _log.warning("the renewed certificate is not used: %s", error)
            return
        self._newest, self._loaded_versions = context, versions
        _log.info("the %s port has a renewed certificate, until %s", self.port, ends)
        self._warn(ends)

    def periodic_task(self) -> PeriodicTask:
        return PeriodicTask(
            f"looking for a renewed certificate of the {self.port} port", REREAD_S, self.reread
        )

    def _use_newest(
        self, connection: ssl.SSLObject, _host: str | None, _first: ssl.SSLContext
    ) -> None:
        """Use the newest certificate for a new connection, with or without a server name."""
        if self._newest is not None:
            connection.context = self._newest

    def load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.chain, self.key, password=_refuse)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None
        return context

    def _file_versions(self) -> tuple[int, ...]:
        """Return inodes and modification times, which change if a file is replaced or written."""
        try:
            files = (self.chain.stat(), self.key.stat())
        except OSError as error:
            raise self._unusable(error) from None
        return tuple(number for file in files for number in (file.st_ino, file.st_mtime_ns))

    def _unusable(self, error: Exception) -> MissingSetting:
        files = f"{self.chain} and {self.key}"
        if isinstance(error, FileNotFoundError):
            missing = next((file for file in (self.chain, self.key) if not file.exists()), "a file")
            reason = f"{missing} is not there"
        elif isinstance(error, PermissionError):
            reason = f"{files} may not be read"
        elif isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            reason = f"the key in {self.key} is not that of the certificate in {self.chain}"
        elif isinstance(error, _Encrypted):
            reason = (
                f"the key in {self.key} is encrypted, and a service cannot prompt for its password"
            )
        else:
            reason = f"{files} hold no certificate and key in PEM"
        return MissingSetting(f"The {self.port} port cannot speak TLS: {reason}.")

    def _warn(self, ends: datetime) -> None:
        if ends <= datetime.now(UTC):
            _log.warning("the certificate of the %s port expired at %s", self.port, ends)


class _Encrypted(ValueError):
    """The key cannot be read without a password."""


def _refuse() -> NoReturn:
    """Refuse, instead of OpenSSL's prompt at the terminal, where a service would wait forever."""
    raise _Encrypted


def certificates(http: HttpSettings) -> dict[str, Certificate]:
    """Return the certificates that the settings name, by port.

    Raises:
        MissingSetting: A certificate has no key, or a key no certificate.
    """
    files = {
        "data": (http.tls_certificate, http.tls_key),
        "admin": (http.admin_tls_certificate, http.admin_tls_key),
    }
    certificates_of: dict[str, Certificate] = {}
    for port, (chain, key) in files.items():
        if chain is not None and key is not None:
            certificates_of[port] = Certificate(port, chain, key)
        elif chain is not key:
            prefix = "PORTOLAN_" if port == "data" else "PORTOLAN_ADMIN_"
            raise MissingSetting(f"{prefix}TLS_CERTIFICATE and {prefix}TLS_KEY go together.")
    return certificates_of
