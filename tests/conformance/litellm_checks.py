"""litellm, through its OpenAI provider."""

from functools import partial
from typing import Any

import litellm

from tests.conformance import openai_checks
from tests.conformance.checks import (
    QUESTION,
    TIMEOUT_S,
    Checks,
    Server,
    require,
    require_usage,
    require_weather,
)
from tests.conformance.openai_checks import TOOL_CHOICE, TOOLS

litellm.suppress_debug_info = True
litellm.telemetry = False


def _ask(server: Server, question: str = QUESTION, **more: Any) -> Any:
    request = {"max_tokens": 48, "temperature": 0, **more}
    return litellm.completion(
        model=f"openai/{server.model}",
        api_base=f"{server.base_url}/v1",
        api_key=server.api_key,
        messages=[{"role": "user", "content": question}],
        timeout=TIMEOUT_S,
        num_retries=0,
        **request,
    )


def streaming(server: Server) -> None:
    chunks = list(_ask(server, stream=True, stream_options={"include_usage": True}))
    require(bool("".join(c.choices[0].delta.content or "" for c in chunks if c.choices)), "no content")
    usages = [c.usage for c in chunks if getattr(c, "usage", None)]
    require(bool(usages), "no usage")
    require_usage(usages[-1].prompt_tokens, usages[-1].completion_tokens, usages[-1].total_tokens)


def tools_streamed(server: Server) -> None:
    chunks = list(_ask(server, "What is the weather in Paris?", tools=TOOLS, tool_choice=TOOL_CHOICE, stream=True))
    whole = litellm.stream_chunk_builder(chunks)
    calls = whole.choices[0].message.tool_calls
    require(bool(calls), f"no tool call: {whole.choices[0].message}")
    require_weather(calls[0].function.arguments)


CHECKS: Checks = {
    "chat": partial(openai_checks.chat, ask=_ask),
    "streaming": streaming,
    "tools": partial(openai_checks.tools, ask=_ask),
    "tools, streamed": tools_streamed,
    "JSON schema": partial(openai_checks.json_schema, ask=_ask),
    "logprobs": partial(openai_checks.logprobs, ask=_ask),
    "n=3": partial(openai_checks.three, ask=_ask),
    "stop": partial(openai_checks.stop, ask=_ask),
}
