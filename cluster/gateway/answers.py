"""Whole answers of the plain case, from templates: the bytes of vLLM's pydantic objects, brought into shape.

One output, no logprobs, no tools, no echo, and an asker that takes bytes. Everything else is vLLM's.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from vllm.outputs import CompletionOutput, RequestOutput

from cluster.gateway.chat_stream import is_plain_chat
from cluster.gateway.completion_stream import is_plain_completion
from cluster.gateway.scope import current_scope
from cluster.gateway.templates import Usage, fingerprint, to_json


class CompletionAnswers:
    """Text completions."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._slow = serving.request_output_to_completion_response
        serving.request_output_to_completion_response = self._answer

    def _answer(
        self, results: Sequence[RequestOutput], request: Any, request_id: str, created: int, model: str, *rest: Any
    ) -> Any:
        if not (len(results) == 1 and is_plain_completion(self._serving, request) and _takes_bytes()):
            return self._slow(results, request, request_id, created, model, *rest)
        (result,) = results
        (output,) = result.outputs
        self._serving._raise_if_error(output.finish_reason, request_id)
        choice = b'"text":' + to_json(output.text)
        return _whole(self._serving, (request_id, b"text_completion", created, model), choice, result)


class ChatAnswers:
    """Chat completions."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._slow = serving.chat_completion_full_generator
        serving.chat_completion_full_generator = self._answer

    async def _answer(
        self, request: Any, results: AsyncIterator[RequestOutput], request_id: str, model: str, *rest: Any, **more: Any
    ) -> Any:
        serving = self._serving
        parsed = serving.parser_cls is not None or serving._include_reasoning_tokens_details
        plain = not parsed and is_plain_chat(serving, request, more)
        if not (plain and _takes_bytes()):
            return await self._slow(request, results, request_id, model, *rest, **more)
        created = int(time.time())
        try:
            async for result in results:
                (output,) = result.outputs
        except asyncio.CancelledError:
            return serving.create_error_response("Client disconnected")
        serving._raise_if_error(output.finish_reason, request_id)
        role = serving.get_chat_request_role(request)
        message = b'"message":{"role":%b,"content":%b,"refusal":null}' % (to_json(role), to_json(output.text))
        return _whole(serving, (request_id, b"chat.completion", created, model), message, result)


def _takes_bytes() -> bool:
    """Whether whoever asked takes bytes for an answer; then they are in shape already."""
    scope = current_scope.get()
    if scope is None or not scope.takes_bytes:
        return False
    scope.shaped = True
    return True


def _whole(serving: Any, named: tuple[str, bytes, int, str], said: bytes, result: RequestOutput) -> bytes:
    """The answer around what was `said`, under its id, kind, time and model."""
    request_id, kind, created, model = named
    output: CompletionOutput = result.outputs[0]
    usage = Usage()
    usage.start(result)
    usage.completion_tokens = len(output.token_ids)
    stop = b"" if output.stop_reason is None else b',"stop_reason":' + to_json(output.stop_reason)
    return b'{"id":%b,"object":"%b","created":%d,"model":%b,"choices":[{"index":0,%b%b%b}]%b%b}' % (
        to_json(request_id),
        kind,
        created,
        to_json(model),
        said,
        b',"logprobs":null,"finish_reason":' + to_json(output.finish_reason),
        stop,
        fingerprint(serving),
        usage.json(serving.enable_prompt_tokens_details),
    )
