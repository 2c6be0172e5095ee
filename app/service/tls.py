"""TLS of a port: a certificate and its key, in files that are read again when they are renewed.

Renewed files become a context of their own, which takes the place of the one before in a single
step: whatever happens to the files while they are read, a connection finds a certificate and its
key, or the ones before. Connections that are open stay as they are.

Kubernetes renews a mounted Secret by turning the link ``..data``, through which the files are
reached, to another directory. So files are compared by which they are, not by their times alone.
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
"""Seconds after which files are looked at again."""

_log = logging.getLogger("portolan.tls")


@dataclass(slots=True)
class Certificate:
    """The certificate of a port.

    Attributes:
        port: What the port is for: ``data`` or ``admin``.
        chain: File with the certificate, and those between it and its root (PEM).
        key: File with its key (PEM, not encrypted).
    """

    port: str
    chain: Path
    key: Path
    _context: ssl.SSLContext | None = None
    _newest: ssl.SSLContext | None = None
    _seen: tuple[int, ...] = field(default=())

    @property
    def context(self) -> ssl.SSLContext:
        """What connections are made with; follows the files once `reread` is called.

        Raises:
            MissingSetting: The files are of no use; the message says why.
        """
        if self._context is None:
            self._seen = self._file_versions()
            self._context = self._newest = self.load()
            self._context.sni_callback = self._use_newest
            self._warn(self.ends)
        return self._context

    @property
    def ends(self) -> datetime:
        """When the certificate ends.

        Raises:
            MissingSetting: There is no certificate in its file.
        """
        try:
            return x509.load_pem_x509_certificate(self.chain.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None

    def check(self) -> datetime:
        """Return when the certificate ends, after trying whether it can be used; see `context`."""
        self.load()
        return self.ends

    async def reread(self) -> None:
        """Use what is in the files now, if it has changed and can be used."""
        try:
            # Before the files are read: what changes meanwhile is then found the next time.
            versions = self._file_versions()
            if versions == self._seen:
                return
            renewed, ends = self.load(), self.ends
        except MissingSetting as error:
            _log.warning("the renewed certificate is not used: %s", error)
            return
        self._newest, self._seen = renewed, versions
        _log.info("the %s port has a renewed certificate, until %s", self.port, ends)
        self._warn(ends)

    def periodic_task(self) -> PeriodicTask:
        return PeriodicTask(
            f"looking for a renewed certificate of the {self.port} port", REREAD_S, self.reread
        )

    def _use_newest(
        self, connection: ssl.SSLObject, _host: str | None, _first: ssl.SSLContext
    ) -> None:
        """Have a new connection use the newest certificate, whether it names a host or not."""
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
        """Return what differs once a file is another, or was written."""
        try:
            files = (self.chain.stat(), self.key.stat())
        except OSError as error:
            raise self._unusable(error) from None
        return tuple(number for file in files for number in (file.st_ino, file.st_mtime_ns))

    def _unusable(self, error: Exception) -> MissingSetting:
        files = f"{self.chain} and {self.key}"
        if isinstance(error, FileNotFoundError):
            missing = next((file for file in (self.chain, self.key) if not file.exists()), "a file")
            why = f"{missing} is not there"
        elif isinstance(error, PermissionError):
            why = f"{files} may not be read"
        elif isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key in {self.key} is not that of the certificate in {self.chain}"
        elif isinstance(error, _Encrypted):
            why = f"the key in {self.key} is encrypted, and nobody is there to give the password"
        else:
            why = f"{files} hold no certificate and key in PEM"
        return MissingSetting(f"The {self.port} port cannot speak TLS: {why}.")

    def _warn(self, ends: datetime) -> None:
        if ends <= datetime.now(UTC):
            _log.warning("the certificate of the %s port ended at %s", self.port, ends)


class _Encrypted(ValueError):
    """The key cannot be read without a password."""


def _refuse() -> NoReturn:
    """Stand in for OpenSSL's question at the terminal, where a service would wait for ever."""
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
