"""What the client has had of a request, and what is left of it when its leg is lost. Pure.

Invariant: an output is unfinished until a delta brought its finish reason; of the unfinished ones every token that was
handed out is here, once.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import Delta, Emitted


@dataclass(slots=True)
class _Output:
    token_ids: "array[int]" = field(default_factory=partial(array, "I"))
    text_chars: int = 0
    cumulative_logprob: float | None = None

    def add(self, delta: Delta) -> None:
        self.token_ids.extend(delta.token_ids)
        self.text_chars += len(delta.text)
        self.cumulative_logprob = delta.cumulative_logprob


class Progress:
    """Fed with every delta on its way to the client."""

    def __init__(self, request: GenerationRequest) -> None:
        self._request = request
        self._unfinished = {index: _Output() for index in range(request.outputs)}
        self._begun = False
        self._resumed = False

    @property
    def finished(self) -> bool:
        """Whether every output is whole."""
        return not self._unfinished

    def take(self, deltas: Sequence[Delta]) -> None:
        """These go out now. Of the prompt only the first leg tells: to later ones, what was emitted is a part of it."""
        self._begun = True
        for delta in deltas:
            if self._resumed:
                delta.num_cached_tokens = None
            if delta.finish_reason is not None:
                del self._unfinished[delta.index]
            else:
                self._unfinished[delta.index].add(delta)

    def leg_lost(self) -> None:
        """What comes now comes from another leg."""
        self._resumed = self._begun

    def emitted(self) -> tuple[Emitted, ...]:
        """Where another replica has to go on; empty before the first token, when it has to begin."""
        if not self._begun:
            return ()
        return tuple(
            Emitted(index, output.token_ids.tolist(), output.text_chars, output.cumulative_logprob)
            for index, output in self._unfinished.items()
        )

    def left(self) -> GenerationRequest:
        """The request as it is to be placed now.

        A single output's tokens are more of its prompt; several share the prompt alone. What is told of the prompt
        with its first token was told.
        """
        if not self._begun:
            return self._request
        made = [output.token_ids for output in self._unfinished.values()]
        return replace(
            self._request,
            token_ids=[*self._request.token_ids, *made[0]] if len(made) == 1 else self._request.token_ids,
            max_tokens=self._request.max_tokens - min(map(len, made)),
            outputs=len(made),
            may_disaggregate=True,
        )
