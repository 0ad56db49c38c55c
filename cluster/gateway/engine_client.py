"""The fleet as vLLM's engine client: validate as its engine would, hand over, assemble the results.

vLLM's API app renders and tokenises and calls `generate` with token ids and sampling parameters. Everything an engine
would refuse is refused here, before a worker hears of it. What goes on is the whole of the sampling parameters, under
an id of ours, because the client chooses vLLM's and may repeat it.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from vllm.config import VllmConfig
from vllm.exceptions import VLLMValidationError
from vllm.outputs import RequestOutput
from vllm.renderers import renderer_from_config
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.input_processor import InputProcessor

from cluster.coordinator.workers import GenerationRequest
from cluster.errors import BatonError, EngineFailed
from cluster.gateway.backend import Backend
from cluster.gateway.failures import Failure
from cluster.gateway.results import ResultAssembler
from cluster.gateway.route_header import claim_placement
from cluster.gateway.scope import OpenGeneration, RequestScope, current_scope
from cluster.gateway.unsupported import FleetClient
from cluster.gateway.vllm_errors import of_invalid, to_vllm

_log = logging.getLogger(__name__)
_TASKS = ("generate",)
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request that has passed vLLM's own validation."""

    core: EngineCoreRequest
    sampling: SamplingParams
    wire: GenerationRequest


class ClusterClient(FleetClient):
    """vLLM's `EngineClient` over a `Backend`. Holds no state of a request beyond its `generate`."""

    def __init__(self, vllm_config: VllmConfig, backend: Backend) -> None:
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.renderer = renderer_from_config(vllm_config)
        self.input_processor = InputProcessor(vllm_config, self.renderer)
        self._backend = backend

    @property
    def is_running(self) -> bool:
        """A gateway runs as long as its process does; `check_health` speaks for the fleet."""
        return True

    @property
    def is_stopped(self) -> bool:
        return False

    @property
    def errored(self) -> bool:
        return False

    @property
    def dead_error(self) -> BaseException:
        return EngineFailed("the gateway is closed")

    def check_admission(self, n: int = 1, request_id: str | None = None) -> None:
        """Refuse `n` more outputs early, while the answer can still have a status of its own."""
        try:
            self._backend.admit(n)
        except BatonError as error:
            raise _failed(error) from None

    async def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        lora_request: Any = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        **_: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The request's results. Raises vLLM's exceptions; closing or cancelling it aborts the request."""
        scope = current_scope.get() or RequestScope()
        try:
            accepted = self._accept(scope, prompt, sampling_params, request_id, lora_request, trace_headers, priority)
        except Exception as error:
            raise _refused(error) from None
        results = ResultAssembler(request_id, accepted.core.prompt_token_ids, sampling_params)
        generation = OpenGeneration(self._backend.generate(accepted.wire))
        scope.enter(generation)
        try:
            while (step := await generation.next()) is not None:
                scope.answering = True
                output = results.push(step)
                if output is not None:
                    yield output
            if not results.finished:
                raise EngineFailed("the stream ended before the answer did")
        except BatonError as error:
            raise _failed(error) from None
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            _log.exception("request %s failed", accepted.wire.request_id)
            raise _failed(EngineFailed("internal error")) from error
        finally:
            scope.leave(generation)
            await generation.close()

    def _accept(
        self,
        scope: RequestScope,
        prompt: Any,
        sampling: SamplingParams,
        request_id: str,
        lora: Any,
        trace_headers: Mapping[str, str] | None,
        priority: int,
    ) -> Accepted:
        """Validate and resolve as vLLM's engine would. Raises what its app answers with 400."""
        core = self.input_processor.process_inputs(
            request_id, prompt, sampling, supported_tasks=_TASKS, lora_request=lora, priority=priority
        )
        if core.prompt_token_ids is None or core.mm_features:
            raise VLLMValidationError("this server takes text prompts only", parameter="prompt")
        resolved = core.sampling_params
        wire = GenerationRequest(
            request_id=uuid.uuid4().hex,
            token_ids=core.prompt_token_ids,
            sampling=encode_sampling(resolved),
            max_tokens=resolved.max_tokens or 1,
            outputs=resolved.n,
            cache_salt=core.cache_salt,
            lora_name=lora.lora_name if lora is not None else None,
            priority=priority,
            trace_headers=dict(trace_headers) if trace_headers else None,
            may_disaggregate=resolved.prompt_logprobs is None,
            placement=claim_placement(),
            first_token_s=scope.first_token_s,
        )
        return Accepted(core, resolved, wire)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """vLLM's app ends requests by closing `generate`, and ids of clients may repeat: nothing to do by id."""

    async def check_health(self) -> None:
        """Raises `BatonError` when no request could be answered."""
        await self._backend.check_health()

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return _TASKS

    async def is_tracing_enabled(self) -> bool:
        """Trace headers are handed on; each worker decides whether it traces."""
        return True

    async def do_log_stats(self) -> None:
        """The gateway's numbers are on its `/metrics`."""

    def shutdown(self, timeout: float | None = None) -> None:
        """Workers belong to Serve, connections to whoever built the backend."""


def encode_sampling(sampling: SamplingParams) -> bytes:
    """The parameters in MessagePack, whole, as deltas and without KV transfers of the client's.

    `sampling` is the request's own copy. Raises VLLMValidationError for a number that no engine could take.
    """
    sampling.output_kind = RequestOutputKind.DELTA
    if sampling.extra_args:
        sampling.extra_args = {k: v for k, v in sampling.extra_args.items() if k != "kv_transfer_params"} or None
    try:
        return _encode(sampling)
    except OverflowError:
        raise VLLMValidationError("a sampling parameter is out of the range of 64-bit integers") from None
    except TypeError:
        raise VLLMValidationError("a sampling parameter has no form that can be sent to a worker") from None


def _refused(error: Exception) -> Exception:
    """A request that did not pass validation, or that broke it."""
    failure = of_invalid(error)
    if failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("validating a request failed", exc_info=error)
        return _failed(EngineFailed("internal error"))
    _remember(failure)
    return error


def _failed(error: BatonError) -> Exception:
    """One of our errors as the exception that vLLM's app understands."""
    _remember(Failure.of(error))
    return to_vllm(error)


def _remember(failure: Failure) -> None:
    """For the ASGI wrapper, which answers with it if nothing has gone out."""
    scope = current_scope.get()
    if scope is not None:
        scope.failure = failure
