"""`--set key.path=value` and `--model`: changes to the arguments of a deployment before they are validated.

Pure. A path names keys of `BatonConfig`, e.g. `decode.engine.args.block_size`; the value is YAML, so `3` is a number
and `true` a boolean. Missing sections are made; what is not a section is not entered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from configs.errors import ConfigError, Problem

Arguments = dict[str, object]


@dataclass(frozen=True, slots=True)
class Override:
    """One assignment. `text` is what the user wrote, for error messages."""

    path: tuple[str, ...]
    value: object
    text: str


def parse(text: str) -> Override:
    """`prefill.replicas=2` as an `Override`; raises `ConfigError` where there is no key or no YAML value."""
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError([Problem("--set", "", f"given '{text}'; allowed: key.path=value")])
    try:
        return Override(path, yaml.safe_load(value), text)
    except yaml.YAMLError:
        raise ConfigError([Problem(f"--set {text}", "", "the value is not YAML; put it in quotes")]) from None


def with_model(path: str) -> list[Override]:
    """What `--model` stands for: another model under its own name."""
    text = f"model.path={path}"
    return [Override(("model", "path"), path, text), Override(("model", "served_name"), None, text)]


def apply(arguments: Mapping[str, object], overrides: Sequence[Override]) -> Arguments:
    """A copy of `arguments` with the overrides made in order."""
    result = _copy(arguments)
    for override in overrides:
        section = result
        for name in override.path[:-1]:
            section = _enter(section, name, override)
        section[override.path[-1]] = override.value
    return result


def _enter(section: Arguments, name: str, override: Override) -> Arguments:
    inner = section.setdefault(name, {})
    if not isinstance(inner, dict):
        raise ConfigError([Problem(f"--set {override.text}", name, f"is {inner!r}, which has no keys inside")])
    return inner


def _copy(section: Mapping[str, object]) -> Arguments:
    return {name: _copy(value) if isinstance(value, dict) else value for name, value in section.items()}
