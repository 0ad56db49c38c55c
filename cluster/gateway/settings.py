"""What a gateway is built from, and what of it vLLM's API server is told on its command line. Pure.

Arguments that a gateway decides itself, or that open routes it must not have, are refused.
"""

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    body_s: float = 60.0  # until a body has arrived whole
    explain_header: bool = False
    max_model_len: int | None = None
    api_args: Mapping[str, Any] = field(default_factory=dict)
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def command_line(settings: GatewaySettings, known: Container[str]) -> list[str]:
    """The words after `vllm serve`; `known` are the arguments it has. Raises InvalidArgument."""
    shared = {k: v for k, v in settings.engine_args.items() if k in SHARED_WITH_ENGINE}
    words = [settings.model_path, "--served-model-name", settings.served_name, "--enable-prompt-tokens-details"]
    if settings.max_model_len is not None:
        words += ["--max-model-len", str(settings.max_model_len)]
    for key, value in {**shared, **settings.api_args}.items():
        words += _words(key, value, known)
    return words


def _words(key: str, value: Any, known: Container[str]) -> list[str]:
    """One argument as command-line words. Raises InvalidArgument."""
    if key in _OURS:
        raise InvalidArgument(f"gateway.api_args.{key}: Baton sets this itself")
    if key not in known:
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
