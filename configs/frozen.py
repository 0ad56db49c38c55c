"""What every section of a configuration is."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of every section: immutable; a key it does not know and a number that is not finite are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
