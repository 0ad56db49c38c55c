"""Streamed text completions of the plain case, from templates."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from vllm.outputs import RequestOutput

from cluster.gateway.templates import END, Usage, fingerprint, finish, head, is_empty, needs_vllm, to_json, written


class CompletionStreams:
    """Text completions."""

    def __init__(self, serving: Any) -> None:
        self._serving = serving
        self._slow = serving.completion_stream_generator
        serving.completion_stream_generator = self._generate

    def _generate(
        self, request: Any, inputs: Any, results: Any, request_id: str, created: int, model: str, **more: Any
    ) -> Any:
        if not self._is_plain(request, more):
            return self._slow(request, inputs, results, request_id, created, model, **more)
        return written(self._serving, self._chunks(request, results, request_id, created, model))

    def _is_plain(self, request: Any, more: dict[str, Any]) -> bool:
        return more.get("num_prompts") == 1 and is_plain_completion(self._serving, request)

    async def _chunks(
        self, request: Any, results: AsyncIterator[tuple[int, RequestOutput]], request_id: str, created: int, model: str
    ) -> AsyncGenerator[bytes, None]:
        serving, usage = self._serving, Usage()
        wants_usage = bool(request.stream_options and request.stream_options.include_usage)
        opening = head(request_id, b"text_completion", created, model)
        text = opening + b'[{"index":0,"text":'
        running = b',"logprobs":null,"finish_reason":null}]}\n\n'
        first = True
        async for _, result in results:
            if first:
                usage.start(result)
                first = False
            output = result.outputs[0]
            serving._raise_if_error(output.finish_reason, request_id)
            if is_empty(output, usage):
                continue
            usage.completion_tokens += len(output.token_ids)
            tail = running if output.finish_reason is None else finish(output, serving, wants_usage, b",")
            yield text + to_json(output.text) + tail
        if wants_usage:
            yield opening + b"[]" + usage.json(serving.enable_prompt_tokens_details) + fingerprint(serving) + END


def is_plain_completion(serving: Any, request: Any) -> bool:
    """Whether the answer to one prompt is one text and nothing else."""
    return not (
        (request.n or 1) != 1
        or request.logprobs is not None
        or request.prompt_logprobs is not None
        or request.echo
        or request.return_token_ids
        or needs_vllm(serving, request)
    )
