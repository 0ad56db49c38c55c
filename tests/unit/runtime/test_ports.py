"""A port that is taken is said to be so, with its holder, before anything starts."""

import os
import socket

import pytest

from cluster.runtime.flags import free_ports
from cluster.runtime.ports import PortTaken, require_free


def test_a_port_in_use_names_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            require_free("127.0.0.1", port)
    said = str(caught.value)
    assert said.startswith(f"127.0.0.1:{port} is in use by ")
    assert said.endswith(f"(process {os.getpid()}); end it or choose another with --port")


def test_a_free_port_is_free() -> None:
    (port,) = free_ports(1)
    require_free("127.0.0.1", port)


def test_a_host_that_is_not_ours_cannot_be_listened_on() -> None:
    with pytest.raises(PortTaken, match=r"cannot listen on 192\.0\.2\.1:80[0-9]+"):
        require_free("192.0.2.1", 8000)
