"""From our settings to vLLM's engine arguments. Refuses what vLLM does not know and what is ours to set."""

import dataclasses
import difflib
import os
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from vllm.config import KVEventsConfig, KVTransferConfig, VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform

from cluster.engines import vllm_cpu_seeds, vllm_replay
from cluster.engines.vllm_settings import VllmEngineSettings
from configs.errors import ConfigError, Problem
from kvtransfer.connector.layout import SlotLayout
from kvtransfer.connector.settings import CONNECTOR_MODULE, CONNECTOR_NAME, ConnectorSettings
from kvtransfer.fingerprint import KvFingerprint

SOURCE = "engine args"
OURS = {
    "model": "model.path",
    "max_model_len": "model.max_model_len",
    "kv_transfer_config": "the KV store",
    "kv_events_config": "the router's index",
    "disable_log_stats": "the load reports",
}
"""Arguments that are not the user's, and what decides them."""


def engine_args(settings: VllmEngineSettings) -> AsyncEngineArgs:
    """vLLM's arguments. Raises `ConfigError` with every unknown or reserved key."""
    known = [field.name for field in dataclasses.fields(AsyncEngineArgs)]
    problems = list(_problems(settings.args, known))
    if problems:
        raise ConfigError(problems)
    return AsyncEngineArgs(**{**_defaults(settings), **settings.args})


def _defaults(settings: VllmEngineSettings) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "model": settings.model,
        "disable_log_stats": True,  # only vLLM's own log lines; its statistics reach our observer
        "kv_events_config": KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq", endpoint=f"ipc://@baton-events-{uuid.uuid4().hex}"
        ),
    }
    if settings.max_model_len is not None:
        ours["max_model_len"] = settings.max_model_len
    if current_platform.is_cpu():
        ours["enforce_eager"] = True  # compiling costs minutes of start and gains little there
    return ours


def _problems(args: Mapping[str, Any], known: Iterable[str]) -> Iterable[Problem]:
    known = list(known)
    for key in args:
        if key in OURS:
            yield Problem(SOURCE, key, f"not allowed here: it follows from {OURS[key]}")
        elif key not in known:
            near = difflib.get_close_matches(key, known, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            yield Problem(SOURCE, key, f"vLLM has no such engine argument{hint}")


def attach_processors(config: VllmConfig) -> bool:
    """Give the engine of `config` our logits processors; False where vLLM takes none: it can replay nothing there."""
    if config.use_v2_model_runner or config.speculative_config is not None:
        return False
    ours = [vllm_replay.NAME, *([vllm_cpu_seeds.NAME] if current_platform.is_cpu() else ())]
    config.model_config.logits_processors = [*(config.model_config.logits_processors or ()), *ours]
    return True


def attach_connector(config: VllmConfig, settings: VllmEngineSettings, fingerprint: KvFingerprint) -> None:
    """Make the engine of `config` share its blocks through the node's store."""
    connector = ConnectorSettings(
        socket_name=settings.store_socket,
        fingerprint=fingerprint.digest(),
        secret=settings.secret,
        layout=SlotLayout.of(fingerprint),
        owner_pid=os.getpid(),
        timeout_s=settings.store_timeout_s,
    )
    config.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR_NAME,
        kv_connector_module_path=CONNECTOR_MODULE,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config=connector.to_extra_config(),
    )
