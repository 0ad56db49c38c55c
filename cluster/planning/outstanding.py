"""Which jobs a worker has been sent and not yet ended, and by which gateway."""

from dataclasses import dataclass

from cluster.planning.job import Job


@dataclass(frozen=True, slots=True)
class Work:
    """Requests, and the prompt tokens of those without a first token."""

    requests: int
    prefill_tokens: int


class Outstanding:
    """Invariant: the counts are those of the jobs in it."""

    def __init__(self, gateways: int) -> None:
        self._jobs: dict[Job, None] = {}
        self._before_first: set[Job] = set()
        self._requests = [0] * gateways
        self._prefill_tokens = [0] * gateways

    def __len__(self) -> int:
        return len(self._jobs)

    def jobs(self) -> list[Job]:
        """All of them, in the order they were sent."""
        return list(self._jobs)

    def of_others(self, gateway: int) -> Work:
        """What the other gateways have here."""
        return Work(
            sum(self._requests) - self._requests[gateway],
            sum(self._prefill_tokens) - self._prefill_tokens[gateway],
        )

    def sent(self, job: Job) -> None:
        """A new job. A decode leg whose prompt another worker computes has none to compute here."""
        self._jobs[job] = None
        self._requests[job.gateway] += 1
        if not job.prefilled_elsewhere:
            self._before_first.add(job)
            self._prefill_tokens[job.gateway] += job.prompt_tokens

    def prompt_done(self, job: Job) -> None:
        """Its prompt is computed. Later calls change nothing."""
        if job in self._before_first:
            self._before_first.remove(job)
            self._prefill_tokens[job.gateway] -= job.prompt_tokens

    def ended(self, job: Job) -> None:
        """It is over. Later calls change nothing."""
        self.prompt_done(job)
        if job in self._jobs:
            del self._jobs[job]
            self._requests[job.gateway] -= 1
