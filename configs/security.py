"""Who may speak with whom between the nodes of a cluster."""

from pathlib import PurePath
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from configs.frozen import Frozen


def _absolute(path: str) -> str:
    """Raises when workers, which have folders of their own, would look elsewhere."""
    if not PurePath(path).is_absolute():
        raise PydanticCustomError("relative_path", "Input should be an absolute path")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class TlsConfig(Frozen):
    """Mutual TLS between nodes. Paths of PEM files, on every node; files that change are read again by themselves."""

    certificate: AbsolutePath = Field(description="the node's certificate; one may serve all nodes")
    key: AbsolutePath = Field(description="the certificate's private key, without a passphrase")
    authority: AbsolutePath = Field(description="the cluster's own authority: whom it vouches for may connect")


class SecurityConfig(Frozen):
    """The cluster secret guards the data plane and the stores; `tls` keeps others from reading and changing them."""

    cluster_secret: SecretStr | None = Field(None, description="default: made once per Ray cluster and kept there")
    listen_host: str | None = Field(
        None, description="address workers and stores listen on; default: the node's Ray address"
    )

    tls: TlsConfig | None = Field(None, description="between nodes; null: in the clear, for private networks")

    @property
    def secret(self) -> bytes:
        """The secret itself, in a configuration that `cluster.app` has put it into."""
        assert self.cluster_secret is not None, "cluster.app puts the secret in"
        return self.cluster_secret.get_secret_value().encode()
