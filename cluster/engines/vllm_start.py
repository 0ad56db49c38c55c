"""Starts vLLM's `AsyncLLM` with our connector and observer. The first file to import vLLM in a replica."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from vllm import SamplingParams
from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import tokens_input
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_args import attach_connector, attach_processors, engine_args
from cluster.engines.vllm_identity import fingerprint_of, traits_of
from cluster.engines.vllm_ledger import Ledger
from cluster.engines.vllm_observer import Observer, SchedulerState
from cluster.engines.vllm_resume import Begun, Means, resume
from cluster.engines.vllm_settings import VllmEngineSettings
from cluster.errors import BatonError, EngineFailed, InvalidRequest
from kvtransfer.connector.settings import LegParams
from kvtransfer.connector.support import refusal
from kvtransfer.fingerprint import KvFingerprint

_sampling = msgspec.msgpack.Decoder(SamplingParams)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What describes a running engine."""

    state: SchedulerState
    fingerprint: KvFingerprint
    events_endpoint: str
    max_model_len: int  # tokens of prompt plus output
    kv_blocks: int  # the device's, less the one vLLM keeps for padding
    max_batched_tokens: int
    max_running: int
    means: Means  # for going on with what another engine began


@dataclass(frozen=True, slots=True)
class Started:
    """A running `AsyncLLM`, which the caller takes over, the processes it has started, and its facts."""

    llm: Any
    processes: Sequence[int]
    facts: EngineFacts


def start(settings: VllmEngineSettings, ledger: Ledger) -> Started:
    """Start the engine's processes and wait until they are ready; blocks for seconds to minutes.

    Raises `ConfigError` for arguments vLLM does not know and `EngineFailed` when it does not come up, also when its
    blocks cannot be shared.
    """
    arguments = engine_args(settings)
    state = SchedulerState()
    if current_platform.is_cpu():
        # Eager mode still compiles small helpers, in C++, at the first request that needs one: 20 s of waiting.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    try:
        config = arguments.create_engine_config()
        reason = refusal(traits_of(config))
        if reason is not None:
            raise EngineFailed(reason)
        fingerprint = fingerprint_of(config)
        attach_connector(config, settings, fingerprint)
        means = Means(settings.replay_tokens if attach_processors(config) else 0, config.use_v2_model_runner)
        observer = partial(Observer, state=state, ledger=ledger)
        llm = AsyncLLM.from_vllm_config(config, stat_loggers=[observer], disable_log_stats=True)
    except (ValueError, RuntimeError, OSError) as error:
        raise EngineFailed(f"vLLM did not start: {error}") from error
    facts = EngineFacts(
        state,
        fingerprint,
        config.kv_events_config.endpoint,
        llm.model_config.max_model_len,
        config.cache_config.num_gpu_blocks - 1,
        config.scheduler_config.max_num_batched_tokens,
        config.scheduler_config.max_num_seqs,
        means,
    )
    return Started(llm, _processes(llm), facts)


def _processes(llm: Any) -> list[int]:
    """The engine cores that run below this process; vLLM's Ray backend has them elsewhere."""
    return [process.pid for process in getattr(llm.engine_core.resources.engine_manager, "processes", ())]


def fingerprint(settings: VllmEngineSettings) -> KvFingerprint:
    """The fingerprint of the engine that `start` would make, in under a second and without starting it."""
    return fingerprint_of(engine_args(settings).create_engine_config())


def begin(llm: Any, request: EngineRequest, leg: str, means: Means) -> Begun:
    """What vLLM is to be asked for a request. Raises `InvalidRequest` and `CannotContinue`."""
    if request.lora_name is not None:
        raise InvalidRequest(f"LoRA adapter {request.lora_name!r} is not loaded")
    sampling = _decode_sampling(request, leg)
    if request.emitted is None:
        return Begun(request.token_ids, sampling)
    return resume(request, request.emitted, sampling, llm.tokenizer, means)


def submit(llm: Any, request: EngineRequest, begun: Begun, leg: str) -> Any:
    """Hand a request to vLLM under the name `leg`; its outputs, as an async generator."""
    return llm.generate(
        tokens_input(list(begun.prompt), cache_salt=request.cache_salt),
        begun.sampling,
        leg,
        trace_headers=request.trace_headers,
        priority=request.priority,
    )


def _decode_sampling(request: EngineRequest, leg: str) -> SamplingParams:
    """The client's parameters, streamed as deltas; transfer parameters are ours alone, and so is what is reported of
    the cache: "full" would repeat blocks as stored that are there already.
    """
    try:
        sampling = _sampling.decode(request.sampling)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
        raise InvalidRequest(f"sampling parameters: {error}") from error
    sampling.output_kind = RequestOutputKind.DELTA
    ours = {
        "kv_transfer_params": LegParams(leg, request.handoff_id, request.load_limit_tokens).to_params(),
        "kv_cache_report_mode": "incremental",
    }
    sampling.extra_args = {**(sampling.extra_args or {}), **ours}
    return sampling


def health_sampling() -> bytes:
    """One token, the cheapest."""
    return msgspec.msgpack.encode(SamplingParams(temperature=0.0, max_tokens=1, detokenize=False))


def translate(error: Exception) -> BatonError | None:
    """Our error for one of vLLM's; None for what is no error of an engine."""
    if isinstance(error, BatonError):
        return error
    if isinstance(error, EngineDeadError):
        return EngineFailed(f"the engine died: {error}")
    if isinstance(error, EngineGenerateError) and isinstance(error.__cause__, Exception):
        return translate(error.__cause__)
    if isinstance(error, VLLMClientError | ValueError | TypeError):
        return InvalidRequest(str(error))
    return EngineFailed(f"{type(error).__name__}: {error}")
