"""Where a service listens."""

import socket

import pytest

from sparring.core.errors import SparringError
from sparring.web.service import address, listening


@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_it_is_heard_at_the_address_that_is_told(host: str, url: str) -> None:
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with listening(host, 0) as server:
        port = server.getsockname()[1]
        socket.create_connection((host, port), timeout=5).close()
        with pytest.raises(SparringError, match=f"--host {host} --port {port}: Address already in use"):
            listening(host, port)
    assert address(host, port) == f"{url}{port}"
