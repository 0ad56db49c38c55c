"""Errors at the edge of vLLM's app: its exceptions as failures, and ours as exceptions its handlers understand."""

from http import HTTPStatus

from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import GenerationError, GracefulHTTPError, RetryableRequestError, VLLMValidationError

from cluster.errors import BatonError, DeadlineExceeded, InvalidRequest, NoReplicaReady, Overloaded, ReplicaLost
from cluster.gateway.failures import Failure


def of_invalid(error: Exception) -> Failure:
    """vLLM's own view of an exception of its validation; a status of 500 means it is none."""
    info = create_error_response(error).error
    return Failure(info.code, info.message, kind=info.type, param=info.param)


def to_vllm(error: BatonError) -> Exception:
    """The vLLM exception whose handlers answer with our status."""
    message = str(error) or type(error).__name__
    match error:
        case InvalidRequest():
            return VLLMValidationError(message)  # type: ignore[no-any-return]  # vllm is not followed by mypy
        case Overloaded() | NoReplicaReady() | DeadlineExceeded():
            return GracefulHTTPError(message, HTTPStatus(error.status))  # type: ignore[no-any-return]
        case ReplicaLost():
            return RetryableRequestError(message)  # type: ignore[no-any-return]
        case _:
            return GenerationError(message)  # type: ignore[no-any-return]
