"""Errors as clients see them."""

import json

import pytest
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

from cluster import errors
from cluster.gateway.failures import Failure, error_body, retry_after
from cluster.gateway.routes import Shape
from cluster.gateway.vllm_errors import to_vllm


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidRequest("m"),
        errors.Overloaded("m", 2.4),
        errors.NoReplicaReady("m"),
        errors.ReplicaLost("m"),
        errors.EngineFailed("m"),
        errors.DeadlineExceeded("m"),
    ],
)
def test_vllms_handlers_answer_with_our_status(error):
    assert create_error_response(to_vllm(error)).error.code == error.status
    assert Failure.of(error).status == error.status


def test_only_statuses_worth_a_retry_say_when():
    assert (b"retry-after", b"2") in Failure.of(errors.Overloaded("m", 2.4)).headers()
    assert (b"retry-after", b"1") in Failure(503, "m").headers()
    assert dict(Failure(400, "m").headers()).get(b"retry-after") is None


def test_when_to_come_back_is_told_in_seconds_and_exactly():
    assert retry_after(429, 0.25) == [(b"retry-after", b"1"), (b"retry-after-ms", b"250")]
    assert dict(retry_after(429, 1.9))[b"retry-after"] == b"1"
    assert retry_after(429, 60.0) == [(b"retry-after", b"60"), (b"retry-after-ms", b"60000")]


def test_clients_that_would_not_wait_so_long_are_told_not_to_come_back():
    assert dict(retry_after(429, 90.0)) == {
        b"retry-after": b"90",
        b"retry-after-ms": b"90000",
        b"x-should-retry": b"false",
    }
    assert retry_after(504, None) == [(b"x-should-retry", b"false")]


def test_a_frameworks_error_becomes_an_openai_error():
    assert json.loads(error_body(b'{"detail":"Method Not Allowed"}', 405, Shape.CHAT)) == {
        "error": {"message": "Method Not Allowed", "type": "MethodNotAllowedError", "param": None, "code": 405}
    }
    assert json.loads(error_body(b"Internal Server Error", 500, Shape.OTHER))["error"]["code"] == 500


def test_anthropics_api_has_error_bodies_of_its_own():
    body = json.dumps({"error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400}}).encode()
    assert json.loads(error_body(body, 400, Shape.MESSAGE)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "m"},
    }
