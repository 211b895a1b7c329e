import socket

import pytest

from lookact.rollout.reach import is_reachable


def test_somebody_listens_or_nobody():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_reachable(f"127.0.0.1:{port}")
        assert is_reachable(f"http://127.0.0.1:{port}/v1")
        assert is_reachable(f"ray://127.0.0.1:{port}")
    assert not is_reachable(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1", "http://", "127.0.0.1:port", "[::1:6379"])
def test_an_address_that_means_nothing_is_not_reachable(address):
    assert not is_reachable(address)
