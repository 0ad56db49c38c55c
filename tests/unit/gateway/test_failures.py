"""Errors as clients see them."""

import json

import pytest
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

from cluster import errors
from cluster.gateway.failures import Failure, error_body
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
