"""The health check of the image: whether the service in this container answers.

It imports nothing of the service, which it only calls. It trusts any certificate, because it calls
its own machine by an address that no certificate names.
"""

from __future__ import annotations

import os
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final

__all__ = ["is_alive", "main"]

WITHIN_S: Final = 2.0
_OK: Final = 200


def is_alive(port: int, *, tls: bool) -> bool:
    connection = (
        _tls_connection(port) if tls else HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    )
    try:
        connection.request("GET", "/live")
        return connection.getresponse().status == _OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _tls_connection(port: int) -> HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=context)


def main() -> int:
    """Return the exit status: 0 if the service answers."""
    port = int(os.environ.get("PORTOLAN_ADMIN_PORT", "8081"))
    return 0 if is_alive(port, tls="PORTOLAN_ADMIN_TLS_CERTIFICATE" in os.environ) else 1


if __name__ == "__main__":
    sys.exit(main())
