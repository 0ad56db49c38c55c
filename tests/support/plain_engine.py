"""A plain vLLM engine without Baton: the reference that real P/D answers are compared with.

Runs as a process of its own: `python -m tests.support.plain_engine MODEL < requests.jsonl > answers.jsonl`. A request is
`{"token_ids": [...], "sampling": {...}}`, an answer `{"token_ids": [...], "text": "...", "logprobs": [{id: logprob}, ...]}`. One
request at a time, because vLLM's CPU kernels are not batch-invariant.
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
        sampling = SamplingParams(**request["sampling"])
        output = engine.generate({"prompt_token_ids": request["token_ids"]}, sampling, use_tqdm=False)[0].outputs[0]
        logprobs = [
            {str(token): entry.logprob for token, entry in position.items()} for position in output.logprobs or ()
        ]
        answer = {"token_ids": list(output.token_ids), "text": output.text, "logprobs": logprobs}
        print("ANSWER " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
