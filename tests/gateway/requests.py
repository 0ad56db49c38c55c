"""Requests and readers that the gateway's tests share."""

import json
import re
from typing import Any

USER = [{"role": "user", "content": "hi"}]
CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": USER, **more}


def completion(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "hi", **more}


def response(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "input": "hi", **more}


def message(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "max_tokens": 32, "messages": USER, **more}


def events(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a stream, without its end mark."""
    lines = (line[6:] for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def normalised(text: str) -> str:
    """Without ids and times, which differ from request to request."""
    text = re.sub(r'"(cmpl|chatcmpl)-[0-9a-f]+"', '"ID"', text)
    return re.sub(r'"created":\d+', '"created":0', text)


def is_openai_error(answer: Any, status: int) -> bool:
    """Whether the body is an OpenAI error that carries the status and gives nothing of our insides away."""
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert error["code"] == status
    assert isinstance(error["message"], str)
    assert error["message"]
    assert "Traceback" not in error["message"]
    assert ".py" not in error["message"]
    return True
