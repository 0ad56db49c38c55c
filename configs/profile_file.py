"""A profile: how fast one replica is and how much it holds, as `baton profile` writes it and the planner reads it."""

from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from configs.errors import ConfigError, Problem
from configs.explain import dotted, explain
from configs.measured import MeasuredConfig
from configs.schema import RatesConfig


class ProfileConfig(RatesConfig):
    """Rates, all of them set, and what planning needs besides."""

    about: str = Field(description="which model on what, and where the figures are from")
    kv_tokens: int = Field(gt=0, description="tokens whose KV fits on the device")
    start_s: float = Field(ge=0, description="from asking for a replica until it takes requests")
    measured: MeasuredConfig = Field(default_factory=MeasuredConfig, description="what the rates were fitted to")

    @property
    def rates(self) -> RatesConfig:
        """What the router needs of it."""
        return RatesConfig.model_validate(self.model_dump(include=set(RatesConfig.model_fields)))

    def all_rates(self) -> dict[str, float]:
        """The rates by name."""
        return self.model_dump(include=set(RatesConfig.model_fields))


def read_profile(path: Path) -> ProfileConfig:
    """A profile from a file. Raises `ConfigError` with every mistake in it."""
    source = str(path)
    try:
        found = ProfileConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError([Problem(source, "", f"cannot be read: {error.strerror}")]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(source, "", f"is not YAML: {error}")]) from None
    except ValidationError as error:
        mistakes = explain(error, ProfileConfig)
        raise ConfigError([Problem(source, dotted(each.path), each.sentence) for each in mistakes]) from None
    if unset := [name for name, value in found.model_dump().items() if value is None]:
        raise ConfigError([Problem(source, name, "is required") for name in unset])
    return found


def write_profile(profile: ProfileConfig) -> str:
    """The text of the file."""
    rates = profile.model_dump(mode="json", exclude={"about", "measured"})
    text = yaml.safe_dump({"about": profile.about, **rates}, sort_keys=False, width=120)
    if not profile.measured.rounds:
        return text
    points = {"measured": profile.measured.model_dump(mode="json")}
    return text + yaml.safe_dump(points, sort_keys=False, width=120, default_flow_style=None)  # a point in a line
