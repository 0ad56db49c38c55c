"""What a running server says of itself."""

import argparse
import json
import urllib.request


def first_model(base_url: str) -> str:
    """The first name `/v1/models` lists."""
    with urllib.request.urlopen(f"{base_url}/v1/models", timeout=30) as reply:
        return str(json.load(reply)["data"][0]["id"])


def parser(about: str) -> argparse.ArgumentParser:
    """With the two options all conformance commands share."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--base-url", default="http://127.0.0.1:8000", help="of the server, without /v1")
    made.add_argument("--model", help="default: the first one the server lists")
    return made
