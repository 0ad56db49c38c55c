import json
import subprocess
import sys

import msgspec
import pytest

from cluster.engines.simulated.sampling import decode

_IMPORT = """
import json, sys
import cluster.engines.simulated.engine
print(json.dumps(sorted({"vllm", "torch", "transformers", "ray"} & set(sys.modules))))
"""


def run_python(code: str) -> bytes:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=110).stdout


def test_the_engine_imports_no_vllm_torch_transformers_or_ray() -> None:
    assert json.loads(run_python(_IMPORT)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_sampling_parameters_encoded_by_vllm_are_understood() -> None:
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(
        n=2,
        max_tokens=40,
        min_tokens=3,
        temperature=0.5,
        seed=9,
        stop=["a", "bc"],
        logprobs=2,
        stop_token_ids=[5],
        prompt_logprobs=1,
        ignore_eos=True,
        extra_args={"some": {"key": 1}},
    )
    sampling = decode(msgspec.msgpack.encode(params))
    assert (sampling.n, sampling.max_tokens, sampling.min_tokens, sampling.seed) == (2, 40, 3, 9)
    assert (sampling.temperature, sampling.ignore_eos) == (0.5, True)
    assert (sampling.stop_strings, sampling.stop_tokens) == (("a", "bc"), {5})
    assert (sampling.logprobs, sampling.prompt_logprobs) == (2, 1)
    assert sampling.extra_args == {"some": {"key": 1}}
