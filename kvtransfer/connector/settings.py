"""What the connector is told by its engine: the `kv_connector_extra_config` of vLLM's KV transfer config.

The one place that knows the names in that dict and in a request's `kv_transfer_params`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kvtransfer.connector.layout import SlotLayout

CONNECTOR_NAME = "BatonConnector"
CONNECTOR_MODULE = "kvtransfer.connector.connector"


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """How to reach the node's store, and whose engine this is."""

    socket_name: str
    fingerprint: str  # digest
    secret: bytes
    layout: SlotLayout
    owner_pid: int  # the process whose end ends the engine
    timeout_s: float = 2.0  # of one round trip to the store

    def to_extra_config(self) -> dict[str, Any]:
        """JSON-like form for vLLM's config."""
        return {
            "socket_name": self.socket_name,
            "fingerprint": self.fingerprint,
            "secret": self.secret.hex(),
            "layout": asdict(self.layout),
            "owner_pid": self.owner_pid,
            "timeout_s": self.timeout_s,
        }

    @classmethod
    def from_extra_config(cls, config: Mapping[str, Any]) -> "ConnectorSettings":
        """Inverse of `to_extra_config`. Raises `KeyError` for a missing entry."""
        return cls(
            socket_name=config["socket_name"],
            fingerprint=config["fingerprint"],
            secret=bytes.fromhex(config["secret"]),
            layout=SlotLayout(**config["layout"]),
            owner_pid=int(config["owner_pid"]),
            timeout_s=float(config["timeout_s"]),
        )


@dataclass(frozen=True, slots=True)
class LegParams:
    """`kv_transfer_params` of a request: our name of the leg, the hand-off it produces, if any, and up to which token
    it may load from the store instead of computing; None: all of it.
    """

    leg: str = ""
    handoff_id: str | None = None
    load_limit_tokens: int | None = None

    def to_params(self) -> dict[str, Any]:
        return {"leg": self.leg, "handoff": self.handoff_id, "load_limit": self.load_limit_tokens}

    @classmethod
    def from_params(cls, params: Mapping[str, Any] | None) -> "LegParams":
        params = params or {}
        return cls(str(params.get("leg", "")), params.get("handoff"), params.get("load_limit"))
