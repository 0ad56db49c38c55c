"""A plain vLLM engine without Baton: the reference that real P/D answers are compared with.

Runs as a process of its own: `python -m tests.support.plain_engine MODEL < requests > answers`. A request is
`{"token_ids": [...], "sampling": {...}}`, an answer `{"token_ids": [...], "text": "...", "logprobs": [{id: logprob}]}`.

Every request is asked twice, and answered by a pair `{"cold": ..., "warm": ...}`. Cold, the engine computes the whole
prompt; warm, it finds its own blocks in its prefix cache and computes only what is not in a whole block, as a decode
worker does. In bfloat16 the two may differ where two candidates tie, with no Baton anywhere: kernels round by the
number of rows. One request at a time, because vLLM's CPU kernels are not batch-invariant.
"""

import json
import os
import sys
from typing import Any


def main(model: str, engine_args: dict[str, Any]) -> None:
    """Answer every request on standard input, in order."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM, SamplingParams

    engine = LLM(model=model, **engine_args)
    for line in sys.stdin:
        request = json.loads(line)
        cold, warm = (answer(engine, request, SamplingParams(**request["sampling"])) for _ in range(2))
        print("ANSWER " + json.dumps({"cold": cold, "warm": warm}), flush=True)


def answer(engine: Any, request: dict[str, Any], sampling: Any) -> dict[str, Any]:
    """One answer, as JSON values."""
    prompt = {"prompt_token_ids": request["token_ids"]}
    output = engine.generate(prompt, sampling, use_tqdm=False)[0].outputs[0]
    logprobs = [{str(token): entry.logprob for token, entry in position.items()} for position in output.logprobs or ()]
    return {"token_ids": list(output.token_ids), "text": output.text, "logprobs": logprobs}


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
