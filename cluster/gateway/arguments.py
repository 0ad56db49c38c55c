"""What a gateway is built from, and how it becomes the arguments of vLLM's API server.

vLLM's own parser checks the values, so a gateway accepts what `vllm serve` accepts. Arguments that a gateway decides
itself, or that open routes it must not have, are refused.
"""

import argparse
import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

_OURS = frozenset(
    {
        "model",
        "model_tag",
        "served_model_name",
        "max_model_len",
        "enable_prompt_tokens_details",
        "host",
        "port",
        "uds",
        "grpc_port",
        "root_path",
        "middleware",
        "enable_fault_tolerance",
        "enable_scale_out",
        "tokens_only",
        "config",
    }
)

# Engine arguments that a gateway needs as well, because it tokenises and validates as the engine would.
SHARED_WITH_ENGINE = frozenset(
    {
        "tokenizer",
        "tokenizer_mode",
        "tokenizer_revision",
        "revision",
        "code_revision",
        "trust_remote_code",
        "hf_overrides",
        "hf_config_path",
        "generation_config",
        "override_generation_config",
        "max_logprobs",
        "logprobs_mode",
        "dtype",
        "quantization",
        "skip_tokenizer_init",
        "structured_outputs_config",
        "reasoning_parser",
    }
)


class InvalidArgument(ValueError):
    """An entry of `gateway.api_args` that vLLM's API server does not take. Names the key."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """One gateway. `engine_args` are the workers'; of them only `SHARED_WITH_ENGINE` matter here."""

    model_path: str
    served_name: str
    max_body_bytes: int
    max_model_len: int | None = None
    api_args: Mapping[str, Any] = field(default_factory=dict)
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def server_arguments(settings: GatewaySettings) -> argparse.Namespace:
    """The parsed arguments of vLLM's API server. Raises InvalidArgument."""
    parser = make_arg_parser(FlexibleArgumentParser())
    flags = _flags(parser)
    shared = {k: v for k, v in settings.engine_args.items() if k in SHARED_WITH_ENGINE}
    words = [settings.model_path, "--served-model-name", settings.served_name, "--enable-prompt-tokens-details"]
    if settings.max_model_len is not None:
        words += ["--max-model-len", str(settings.max_model_len)]
    for key, value in {**shared, **settings.api_args}.items():
        words += _words(key, value, flags)
    args = _parse(parser, words)
    args.model = settings.model_path
    return args


def _flags(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {action.dest: action for action in parser._actions if action.option_strings}


def _words(key: str, value: Any, flags: Mapping[str, argparse.Action]) -> list[str]:
    """One argument as command-line words. Raises InvalidArgument."""
    if key in _OURS:
        raise InvalidArgument(f"gateway.api_args.{key}: Baton sets this itself")
    action = flags.get(key)
    if action is None:
        raise InvalidArgument(f"gateway.api_args.{key}: vLLM's API server has no argument of this name")
    flag = f"--{key.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag] if value else [f"--no-{flag[2:]}"]
    if isinstance(value, dict):
        return [flag, json.dumps(value)]
    if isinstance(value, list):
        return [flag, *(v if isinstance(v, str) else json.dumps(v) for v in value)]
    return [flag, str(value)]


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """argparse ends the process on an error; here it is an exception with its last line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser.parse_args(words)
    except SystemExit:
        reason = said.getvalue().strip().rpartition("\n")[2]
        raise InvalidArgument(f"gateway.api_args: {reason}") from None
    except ValueError as error:
        raise InvalidArgument(f"gateway.api_args: {error}") from error
    try:
        validate_parsed_serve_args(args)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidArgument(f"gateway.api_args: {error}") from error
    return args
