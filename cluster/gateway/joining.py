"""Who a gateway is to the workers."""

import uuid

from cluster.dataplane.connection import ConnectionSettings
from cluster.dataplane.link import PoolSettings
from cluster.models.identity import model_digest
from cluster.security import tls_identity
from configs.schema import BatonConfig


def pool_settings(config: BatonConfig, model_path: str) -> PoolSettings:
    """A new identity with the cluster's secret, for workers that serve the model at `model_path`, which is read."""
    return PoolSettings(
        gateway=uuid.uuid4().hex,
        secret=config.security.secret,
        model_fingerprint=model_digest(model_path),
        connection=ConnectionSettings.of(config.timeouts, tls_identity(config.security)),
    )
