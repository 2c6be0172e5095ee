"""The health check of the image: whether the service in this container answers.

It calls the process and nothing else, so it imports nothing of it, and trusts whatever certificate
the port shows: it has come to its own machine, by an address that no certificate names.
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
    connection = _secured(port) if tls else HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    try:
        connection.request("GET", "/live")
        return connection.getresponse().status == _OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _secured(port: int) -> HTTPSConnection:
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection("127.0.0.1", port, timeout=WITHIN_S, context=anybody)


def main() -> int:
    """Return the exit status: 0 if it answers."""
    port = int(os.environ.get("PORTOLAN_ADMIN_PORT", "8081"))
    return 0 if is_alive(port, tls="PORTOLAN_ADMIN_TLS_CERTIFICATE" in os.environ) else 1


if __name__ == "__main__":
    sys.exit(main())
