"""Three client libraries against a running server, feature by feature: a table, and the reason of every failure.

Run from the environment of `clients.lock` (`make conformance`). Ends with 1 when anything failed.
"""

import os
import sys
from importlib.metadata import version

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # litellm fetches a price list on import otherwise

from tests.conformance import anthropic_checks, litellm_checks, openai_checks
from tests.conformance.checks import FEATURES, Checks, Server
from tests.conformance.server import first_model, parser

CLIENTS: dict[str, Checks] = {
    "openai": openai_checks.CHECKS,
    "litellm": litellm_checks.CHECKS,
    "anthropic": anthropic_checks.CHECKS,
}
ABSENT = "-"


def failure(client: str, feature: str, server: Server) -> str | None:
    """Why a feature fails with a client; an empty string when it passes, None where the client's API lacks it."""
    check = CLIENTS[client].get(feature)
    if check is None:
        return None
    try:
        check(server)
    except Exception as error:  # whatever a client raises is the answer
        return f"{type(error).__name__}: {error}"[:400] or type(error).__name__
    return ""


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    server = Server(options.base_url, options.model or first_model(options.base_url))
    names = {client: f"{client} {version(client)}" for client in CLIENTS}
    print(f"{server.base_url}, model {server.model}")
    print("  ".join(["feature".ljust(16), *(name.ljust(18) for name in names.values())]))
    reasons: list[str] = []
    for feature in FEATURES:
        cells = []
        for client, name in names.items():
            reason = failure(client, feature, server)
            cells.append(ABSENT if reason is None else "FAIL" if reason else "pass")
            if reason:
                reasons.append(f"{name}, {feature}: {reason}")
        print("  ".join([feature.ljust(16), *(cell.ljust(18) for cell in cells)]), flush=True)
    print("\n".join(reasons))
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    main()
