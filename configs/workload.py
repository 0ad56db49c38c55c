"""A workload that was not recorded but described: phases of arrivals, lengths and shared prefixes.

What a user writes in a YAML file for `baton plan --trace FILE.yaml`. `cluster.planning.synthetic` makes requests of it.
"""

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError

from configs.errors import ConfigError, Problem
from configs.explain import dotted, explain
from configs.frozen import Frozen
from configs.schema import PositiveSeconds

Tokens = Annotated[int, Field(gt=0, le=10_000_000)]


class ArrivalsConfig(Frozen):
    """When requests come: gaps with a gamma distribution."""

    rate_per_s: float = Field(gt=0, le=1e6, description="requests a second, on average")
    variation: float = Field(
        1.0, ge=0, le=20, description="coefficient of variation of the gaps: 1 is Poisson, 0 is a clock, more is bursty"
    )


class LengthsConfig(Frozen):
    """Tokens with a log-normal distribution, cut off at both ends."""

    mean_tokens: float = Field(gt=0, le=1e7, description="before it is cut off")
    variation: float = Field(1.0, ge=0, le=20, description="coefficient of variation; 0: all alike")
    least_tokens: Tokens = 1
    most_tokens: Tokens = 131_072


class PrefixLevelConfig(Frozen):
    """One level of the tree of shared prefixes: below every node of the level above there are `choices`."""

    tokens: Tokens = Field(description="of prompt that this level adds")
    choices: int = Field(gt=0, le=1_000_000, description="different continuations, e.g. 4 system prompts")
    skew: float = Field(
        0.0, ge=0, le=10, description="exponent of Zipf's law over the choices; 0: all are equally frequent"
    )


class PhaseConfig(Frozen):
    """Traffic of one kind for a while. What is left of a prompt below its prefixes is its own."""

    duration_s: PositiveSeconds
    arrivals: ArrivalsConfig
    prompt: LengthsConfig
    output: LengthsConfig
    prefixes: tuple[PrefixLevelConfig, ...] = Field((), description="from the root down")


class WorkloadConfig(Frozen):
    """Phases, one after the other. The same seed gives the same requests."""

    phases: list[PhaseConfig] = Field(min_length=1)
    seed: int = Field(1, ge=0)


def load_workload(path: Path) -> WorkloadConfig:
    """Read a description. Raises `ConfigError` with every mistake in it, or `OSError`."""
    source = str(path)
    try:
        return WorkloadConfig.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([Problem(source, "", f"is not YAML: {error}")]) from None
    except ValidationError as error:
        mistakes = explain(error, WorkloadConfig)
        raise ConfigError([Problem(source, dotted(each.path), each.sentence) for each in mistakes]) from None
