"""What a leg asks of its engine. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from cluster.dataplane.frames import Emitted, Generate
from cluster.engines.engine import EngineRequest


def engine_request(generate: Generate, token_ids: Sequence[int]) -> EngineRequest:
    """The leg's request; `token_ids` are its prompt, unpacked."""
    is_prefill = generate.role == "prefill"
    return EngineRequest(
        request_id=generate.request_id,
        token_ids=token_ids,
        sampling=bytes(generate.sampling),
        handoff_id=generate.handoff.handoff_id if is_prefill and generate.handoff is not None else None,
        cache_salt=generate.cache_salt,
        lora_name=generate.lora_name,
        priority=generate.priority,
        trace_headers=generate.trace_headers,
        load_limit_tokens=generate.load_limit_tokens,
    )


def going_on(request: EngineRequest, emitted: Sequence[Emitted]) -> list[EngineRequest]:
    """The request itself, or one for each output that goes on: they share the prompt, but not what followed."""
    if not emitted:
        return [request]
    return [replace(request, request_id=f"{request.request_id}.{each.index}", emitted=each) for each in emitted]


def known_tokens(prompt: list[int], emitted: Sequence[Emitted]) -> list[int]:
    """What is known of the sequence that is decoded: of several that go on, what they share."""
    return prompt + emitted[0].token_ids if len(emitted) == 1 else prompt
