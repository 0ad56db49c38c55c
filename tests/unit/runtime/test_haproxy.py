"""HAProxy as the launcher starts it, on a configuration with the section heads of Ray's template."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cluster.runtime.haproxy import BINARY, READ_BY_SERVE, RETRY_ON, haproxy_launcher

CONFIG = """defaults
    mode http
    timeout client 3600s
    timeout http-keep-alive 90s
frontend http_frontend
    bind fd@{listening}
    http-request return status 200 content-type text/plain lf-string "%[req.hdr({name})]"
"""
TWO_GATEWAYS = """defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
    option redispatch 1
    retry-on {retry_on}
frontend http_frontend
    bind fd@{{listening}}
    default_backend gateways
backend gateways
    http-reuse always
    server one 127.0.0.1:{ports[0]}
    server other 127.0.0.1:{ports[1]}
"""


@asynccontextmanager
async def haproxy(
    folder: Path, name: str = "x-request-id", headers_s: int = 30, text: str = CONFIG
) -> AsyncIterator[int]:
    """A running HAProxy that answers with what it leaves of a header; its port. Who connects early waits."""
    config = folder / "haproxy.cfg"
    launcher = haproxy_launcher(folder, config, headers_s)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config.write_text(text.format(listening=listening.fileno(), name=name))
        process = await asyncio.create_subprocess_exec(
            launcher, "-db", "-f", config, pass_fds=[listening.fileno()], stderr=subprocess.DEVNULL
        )
        try:
            yield listening.getsockname()[1]
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def answer(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("name", READ_BY_SERVE)
async def test_what_serve_could_not_read_does_not_reach_it(tmp_path: Path, name: str) -> None:
    head = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + name.encode() + b": "
    async with haproxy(tmp_path, name) as port:
        kept = await answer(port, head + b"of mine-1 ~\r\n\r\n")
        dropped = await answer(port, head + b"\xff\xfe\r\n\r\n")
    assert kept.endswith(b"\r\n\r\nof mine-1 ~")
    assert dropped.startswith(b"HTTP/1.1 200 ")
    assert dropped.endswith(b"\r\n\r\n")


async def test_a_client_that_does_not_finish_its_head_is_cut_off(tmp_path: Path) -> None:
    async with haproxy(tmp_path, headers_s=1) as port:
        got = await answer(port, b"GET / HTTP/1.1\r\nhost: ")
    assert got.startswith(b"HTTP/1.1 408 ")


async def test_a_request_on_a_connection_that_a_gateway_closes_is_asked_of_another(tmp_path: Path) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; whoever uses the connection again finds it closed."""
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.read(1)
        writer.close()

    gateways = [await asyncio.start_server(once, "127.0.0.1", 0) for _ in range(2)]
    text = TWO_GATEWAYS.format(retry_on=RETRY_ON, ports=[each.sockets[0].getsockname()[1] for each in gateways])
    async with haproxy(tmp_path, text=text) as port:
        asked = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        answers = [await answer(port, asked) for _ in range(6)]
    for each in gateways:
        each.close()
    assert [each[-2:] for each in answers] == [b"ok"] * 6


async def test_a_file_that_was_added_to_is_not_added_to_again(tmp_path: Path) -> None:
    async with haproxy(tmp_path) as port:
        await answer(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        once = (tmp_path / "haproxy.cfg").read_text()
    again = await asyncio.create_subprocess_exec(tmp_path / "haproxy", "-v", stdout=subprocess.DEVNULL)
    assert await again.wait() == 0
    assert (tmp_path / "haproxy.cfg").read_text() == once
    assert once.count("timeout http-request") == 1
    assert once.count("del-header") == len(READ_BY_SERVE)


def test_rays_template_has_the_sections_that_are_added_to() -> None:
    # Not at the top: the Ray tests collect this file too, and Ray reads its environment when it is imported.
    from ray.serve._private.haproxy_templates import HAPROXY_CONFIG_TEMPLATE

    lines = HAPROXY_CONFIG_TEMPLATE.splitlines()
    assert lines.count("defaults") == 1
    assert lines.count("frontend http_frontend") == 1


def test_another_runs_launcher_is_not_launched_wherever_its_folder_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inherited = tmp_path / "elsewhere" / "1f-2a3b" / "haproxy"
    monkeypatch.setenv(BINARY, str(inherited))
    launcher = haproxy_launcher(tmp_path, tmp_path / "haproxy.cfg")
    assert str(inherited) not in launcher.read_text()
