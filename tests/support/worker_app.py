"""A Serve application of one worker alone, to be named in a Serve file."""

from ray import serve

from cluster.workers.deployment import DecodeWorker
from configs.schema import BatonConfig


def build(config: BatonConfig) -> serve.Application:
    """A decode worker without a gateway."""
    return serve.deployment(DecodeWorker).options(ray_actor_options={"num_cpus": 0}).bind(config)
