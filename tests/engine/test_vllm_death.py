"""An engine whose processes die says so at once, and closing it leaves nothing."""

import psutil
import pytest

from cluster.engines.engine import EngineRequest
from cluster.engines.vllm_engine import VllmEngine
from cluster.errors import EngineFailed
from tests.contracts.engine_pair import sampling
from tests.engine.asking import new_prompt

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
]


async def test_a_dead_engine_core_fails_streams_and_health(engine: VllmEngine) -> None:
    """Ends the shared engine: the files of those who use it sort before this one."""
    children = psutil.Process().children(recursive=True)
    ours = [child for child in children if child.name().startswith("VLLM::") and child.status() != psutil.STATUS_ZOMBIE]
    assert len(ours) == 2
    core = next(child for child in ours if "EngineCore" in child.name())
    deltas = engine.generate(EngineRequest("cut", new_prompt(40), sampling(max_tokens=1500)))
    await anext(deltas)
    core.kill()
    with pytest.raises(EngineFailed, match="died"):
        [delta async for delta in deltas]
    with pytest.raises(EngineFailed):
        await engine.check_health()
    await engine.close()
    _, alive = psutil.wait_procs(ours, timeout=5.0)
    assert alive == []
