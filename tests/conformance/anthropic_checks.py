"""The Anthropic SDK. Its Messages API knows neither logprobs nor n."""

from typing import Any

from anthropic import Anthropic

from tests.conformance.checks import (
    QUESTION,
    TIMEOUT_S,
    VERDICT_SCHEMA,
    WEATHER,
    WEATHER_ABOUT,
    WEATHER_SCHEMA,
    Checks,
    Server,
    a_word_of,
    require,
    require_stopped,
    require_verdict,
    require_weather,
)

TOOLS: Any = [{"name": WEATHER, "description": WEATHER_ABOUT, "input_schema": WEATHER_SCHEMA, "strict": True}]
TOOL_CHOICE: Any = {"type": "tool", "name": WEATHER}
SCHEMA: Any = {"format": {"type": "json_schema", "schema": VERDICT_SCHEMA}}


def _client(server: Server) -> Anthropic:
    return Anthropic(base_url=server.base_url, api_key=server.api_key, timeout=TIMEOUT_S, max_retries=0)


def _request(server: Server, question: str = QUESTION, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"model": server.model, "messages": messages, "max_tokens": 48, "extra_body": {"temperature": 0}, **more}


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _require_tool_use(message: Any) -> None:
    uses = [block for block in message.content if block.type == "tool_use"]
    require(len(uses) == 1, f"content: {message.content}")
    require(uses[0].name == WEATHER, f"called {uses[0].name}")
    require_weather(uses[0].input)


def chat(server: Server) -> None:
    message = _client(server).messages.create(**_request(server))
    require(message.type == "message" and message.role == "assistant", f"type {message.type}, role {message.role}")
    require(bool(_text(message)), "no text")
    require(message.stop_reason in ("end_turn", "max_tokens"), f"stop_reason {message.stop_reason}")
    require(message.usage.input_tokens > 0 and message.usage.output_tokens > 0, f"usage {message.usage}")


def streaming(server: Server) -> None:
    with _client(server).messages.stream(**_request(server)) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    require(bool(text) and text == _text(message), f"streamed {text!r}, final {_text(message)!r}")
    require(message.usage.output_tokens > 0, f"usage {message.usage}")


def tools(server: Server) -> None:
    question = "What is the weather in Paris?"
    _require_tool_use(
        _client(server).messages.create(**_request(server, question, tools=TOOLS, tool_choice=TOOL_CHOICE))
    )


def tools_streamed(server: Server) -> None:
    question = "What is the weather in Paris?"
    with _client(server).messages.stream(**_request(server, question, tools=TOOLS, tool_choice=TOOL_CHOICE)) as stream:
        _require_tool_use(stream.get_final_message())


def json_schema(server: Server) -> None:
    message = _client(server).messages.create(**_request(server, "Is Paris a capital?", output_config=SCHEMA))
    require_verdict(_text(message))


def stop(server: Server) -> None:
    client = _client(server)
    whole = _text(client.messages.create(**_request(server)))
    word = a_word_of(whole)
    stopped = client.messages.create(**_request(server, stop_sequences=[word]))
    require(stopped.stop_reason == "stop_sequence", f"stop_reason {stopped.stop_reason}")
    require(stopped.stop_sequence == word, f"stop_sequence {stopped.stop_sequence!r}")
    require_stopped(whole, _text(stopped), word)


CHECKS: Checks = {
    "chat": chat,
    "streaming": streaming,
    "tools": tools,
    "tools, streamed": tools_streamed,
    "JSON schema": json_schema,
    "stop": stop,
}
