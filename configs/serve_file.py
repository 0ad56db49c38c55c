"""The outside of a Serve config file: what of Ray Serve's own format must be known before Ray runs.

Every key that is not named here is Ray's to check and is let through.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

IMPORT_PATH = "cluster.app:build"

AUTOSCALING_POLICY = {"policy_function": "cluster.autoscaling:JointPolicy"}
"""Beside `args`, where a pool may have more replicas than it begins with."""


class HttpOptions(BaseModel):
    """The one address that clients use."""

    model_config = ConfigDict(frozen=True, extra="allow")

    host: str = Field("127.0.0.1", min_length=1)
    port: Annotated[int, Field(ge=1, le=65_535)] = 8000


class Application(BaseModel):
    """One application; ours has `IMPORT_PATH` and a `BatonConfig` as `args`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    import_path: str
    args: dict[str, Any] = Field(default_factory=dict)
    name: str = Field("baton", min_length=1)
    route_prefix: str = "/"


class ServeFile(BaseModel):
    """The whole document."""

    model_config = ConfigDict(frozen=True, extra="allow")

    applications: list[Application] = Field(min_length=1)
    http_options: HttpOptions = Field(default_factory=HttpOptions)
