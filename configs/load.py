"""Reads a deployment from a Serve config file: the one place that opens such a file.

The file is what `serve deploy` takes: one application with `import_path: cluster.app:build` whose `args` are a
`BatonConfig`, Ray's own keys around it. Everything that is wrong with it is said at once, in a `ConfigError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from configs.errors import ConfigError, Problem
from configs.explain import KeyPath, Mistake, dotted, explain
from configs.overrides import Override, apply
from configs.schema import BatonConfig
from configs.serve_file import AUTOSCALING_POLICY, IMPORT_PATH, HttpOptions, ServeFile

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A file that was read: where it lies, the application's name and address, its configuration."""

    source: str
    name: str
    route_prefix: str
    http: HttpOptions
    config: BatonConfig

    @property
    def model_name(self) -> str:
        """The name clients use."""
        return self.config.model.name

    def application(self) -> dict[str, object]:
        """The same as an entry of a Serve file, with autoscaling as the configuration has it."""
        args = self.config.model_dump(mode="json")
        if self.config.security.cluster_secret is not None:
            args["security"]["cluster_secret"] = self.config.security.cluster_secret.get_secret_value()
        policy = {"autoscaling_policy": AUTOSCALING_POLICY} if self.config.scales else {}
        names = {"name": self.name, "route_prefix": self.route_prefix, "import_path": IMPORT_PATH}
        return {**names, "args": args, **policy}

    def on_one_machine(self, model_path: str) -> "Deployment":
        """The same, listening on loopback only, with the model at `model_path` under its old name."""
        old = self.config
        model = old.model.model_copy(update={"path": model_path, "served_name": self.model_name})
        security = old.security.model_copy(update={"listen_host": old.security.listen_host or "127.0.0.1"})
        return replace(self, config=old.model_copy(update={"model": model, "security": security}))


def load(path: str | Path, overrides: Sequence[Override] = (), port: int | None = None) -> Deployment:
    """Read a file, make the overrides, validate; raises `ConfigError`. `port` replaces the file's."""
    source = str(path)
    file = _validate(ServeFile, _document(source), source)
    index = _ours(file, source)
    application = file.applications[index]
    return Deployment(
        source=source,
        name=application.name,
        route_prefix=application.route_prefix,
        http=file.http_options.model_copy(update={"port": port}) if port else file.http_options,
        config=_validate(
            BatonConfig, apply(application.args, overrides), source, ("applications", index, "args"), overrides
        ),
    )


def _document(source: str) -> object:
    try:
        return yaml.safe_load(Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([Problem(source, "", f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(source, "", f"is not UTF-8 text (byte {error.start})")]) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError([Problem(f"{source}:{line}", "", f"is not YAML: {error.problem}")]) from None
    except yaml.YAMLError as error:
        raise ConfigError([Problem(source, "", f"is not YAML: {error}")]) from None


def _ours(file: ServeFile, source: str) -> int:
    """The index of the one application that is Baton."""
    paths = [application.import_path for application in file.applications]
    if paths.count(IMPORT_PATH) != 1:
        key = "applications[0].import_path" if len(paths) == 1 else "applications"
        given = ", ".join(f"'{path}'" for path in paths)
        raise ConfigError([Problem(source, key, f"given {given}; allowed: '{IMPORT_PATH}', once")])
    return paths.index(IMPORT_PATH)


def _validate(
    model: type[Model], given: object, source: str, at: KeyPath = (), overrides: Sequence[Override] = ()
) -> Model:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise ConfigError([_problem(mistake, source, at, overrides) for mistake in explain(error, model)]) from None


def _problem(mistake: Mistake, source: str, at: KeyPath, overrides: Sequence[Override]) -> Problem:
    """Blames the override that set the key, if one did, else the file."""
    for override in reversed(overrides):
        if mistake.path[: len(override.path)] == override.path:
            return Problem(f"--set {override.text}", dotted(mistake.path), mistake.sentence)
    return Problem(source, dotted((*at, *mistake.path)), mistake.sentence)
