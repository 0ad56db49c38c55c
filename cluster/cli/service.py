"""Which workers are out of service, as a gateway's metrics say. Every gateway's tell of all workers."""

import re
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping

ANSWER_S = 3.0

_SAMPLE = re.compile(r'^baton_worker_(draining|running|waiting|held)\{replica="([^"]+)"\} (\S+)$', re.MULTILINE)


def out_of_service(url: str) -> Mapping[str, str]:
    """By replica id: `draining`, or `drained` where nothing runs any more. Empty when the gateway does not answer."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=ANSWER_S) as answer:
            return words(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return {}


def words(metrics: str) -> Mapping[str, str]:
    """The same of what `/metrics` says."""
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for name, replica_id, value in _SAMPLE.findall(metrics):
        found[replica_id][name] = float(value)
    return {
        replica_id: "draining" if sum(each.values()) > each["draining"] else "drained"
        for replica_id, each in found.items()
        if each.get("draining")
    }
