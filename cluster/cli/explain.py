"""Asks a router about one prompt, and shows what it says."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from configs.load import Deployment
from routing.block_keys import PromptKeys
from routing.errors import NoCandidate
from routing.fit import why_none
from routing.kv_aware import Candidate, KvAware
from routing.router import RouteRequest

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt, as text or as a file of token ids."""

    model_path: str
    text: str | None
    tokens_file: Path | None
    max_tokens: int
    salt: str | None

    def token_ids(self) -> list[int]:
        """The prompt in tokens, special ones included as for a completion."""
        if self.tokens_file is not None:
            return _numbers(self.tokens_file)
        from tokenizers import Tokenizer

        assert self.text is not None
        tokenizer: Any = Tokenizer.from_file(str(Path(self.model_path) / "tokenizer.json"))
        return list(tokenizer.encode(self.text).ids)


@dataclass(frozen=True, slots=True)
class Answer:
    """The candidates, the best first, for a prompt of `prompt_tokens`."""

    prompt_tokens: int
    max_tokens: int
    candidates: Sequence[Candidate]


def ask(deployment: Deployment, question: Question) -> Answer:
    """This process is a driver of the deployment's Ray already."""
    from cluster.app import with_secret
    from cluster.gateway.lookout import NotSeen

    config = with_secret(deployment.config)
    try:
        return asyncio.run(_ask(deployment.name, config, question))
    except (NotSeen, NoCandidate) as error:
        raise typer.BadParameter(str(error)) from error


async def _ask(application: str, config: Any, question: Question) -> Answer:
    from cluster.gateway.lookout import lookout

    ids = question.token_ids()
    request = RouteRequest("explain", len(ids), question.max_tokens, keys=PromptKeys(ids, question.salt))
    async with lookout(config, application, question.model_path) as seen:
        router = seen.routing.router
        if not isinstance(router, KvAware):
            raise typer.BadParameter("router.policy is not kv_aware: nothing is predicted")
        fleet = seen.pool.fleet()
        candidates = router.explain(request, fleet, time.monotonic())
        if not candidates:
            raise NoCandidate(why_none(request, fleet))
    return Answer(len(ids), question.max_tokens, candidates)


def to_json(answer: Answer) -> str:
    """All candidates."""
    return json.dumps(
        {
            "prompt_tokens": answer.prompt_tokens,
            "max_tokens": answer.max_tokens,
            "candidates": [
                {**asdict(each), "predicted": {**asdict(each.predicted), "ttft_s": each.predicted.ttft_s}}
                for each in answer.candidates
            ],
        },
        indent=2,
    )


def as_table(answer: Answer) -> str:
    """The best candidates, in milliseconds."""
    head = ("cost", "TTFT", "queue", "compute", "load", "1st step", "ITL", "computed", "cached")
    lines = [
        f"{answer.prompt_tokens} prompt tokens, at most {answer.max_tokens} of output; milliseconds, tokens",
        "".join(f"{name:>10}" for name in head) + "  placement",
    ]
    lines += [_row(each) for each in answer.candidates[:SHOWN]]
    if len(answer.candidates) > SHOWN:
        lines.append(f"and {len(answer.candidates) - SHOWN} more (--json shows all)")
    return "\n".join(lines)


def _row(candidate: Candidate) -> str:
    p = candidate.predicted
    seconds = (candidate.cost_s, p.ttft_s, p.queue_s, p.compute_s, p.load_s, p.first_step_s, p.itl_s)
    where = f"{candidate.decode} alone" if candidate.prefill is None else f"{candidate.prefill} → {candidate.decode}"
    if (fetch := candidate.fetch) is not None:
        where += f", {fetch.end_tokens - fetch.start_tokens} tokens from {fetch.node_id}"
    return "".join(f"{1000 * each:10.1f}" for each in seconds) + f"{p.computed_tokens:10}{p.cached_tokens:10}  {where}"


def _numbers(file: Path) -> list[int]:
    text = file.read_text(encoding="utf-8")
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else [int(word) for word in text.split()]
        return [_token(each) for each in found]
    except ValueError as error:
        raise typer.BadParameter(f"{file} has no token ids: {error}") from error


def _token(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**32:
        raise ValueError(f"{value!r} is no token id")
    return value
