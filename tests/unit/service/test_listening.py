from __future__ import annotations

import socket

from app.service.serving import listening


def test_a_body_does_not_wait_for_the_acknowledgement_of_its_head() -> None:
    with (
        listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
