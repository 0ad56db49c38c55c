"""A gateway's settings as the arguments of vLLM's API server.

vLLM's own parser checks the values, so a gateway accepts what `vllm serve` accepts.
"""

import argparse
import contextlib
import io

from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

from cluster.gateway.settings import GatewaySettings, InvalidArgument, command_line


def server_arguments(settings: GatewaySettings) -> argparse.Namespace:
    """The parsed arguments of vLLM's API server. Raises InvalidArgument."""
    parser = make_arg_parser(FlexibleArgumentParser())
    known = {action.dest for action in parser._actions if action.option_strings}
    args = _parse(parser, command_line(settings, known))
    args.model = settings.model_path
    return args


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """argparse ends the process on an error; here it is an exception with its last line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args = parser.parse_args(words)
    except SystemExit:
        reason = said.getvalue().strip().rpartition("\n")[2]
        raise InvalidArgument(f"gateway.api_args: {reason}") from None
    except ValueError as error:
        raise InvalidArgument(f"gateway.api_args: {error}") from error
    try:
        validate_parsed_serve_args(args)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidArgument(f"gateway.api_args: {error}") from error
    return args
