"""What the engine suite needs to know of a kind of engine; each kind is a module `tests.contracts.engine_<name>`."""

from collections.abc import Sequence
from typing import Protocol

from cluster.engines.engine import Engine


class EngineKind(Protocol):
    """Builds engines of one kind. Each module has one as `KIND`.

    Two engines of a kind over one store must exchange blocks. `vocabulary`: token ids run from 0 up to it.
    `bytes_of_characters` are ids of which several make one character; none where an engine takes no allowed ids.
    """

    name: str
    block_size: int
    vocabulary: int
    max_model_len: int
    bytes_of_characters: Sequence[int]

    def fingerprint(self) -> str:
        """The digest its store is started with."""
        ...

    async def create(self, socket_name: str, secret: bytes, index: int) -> Engine:
        """The `index`-th engine (0 or 1) over the store at `socket_name`, ready."""
        ...
