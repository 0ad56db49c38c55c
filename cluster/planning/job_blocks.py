"""The blocks of the jobs of one engine: what each holds, and how its content becomes known.

A job holds `blocks`, of which the first `published` have the keys of its prompt, then keys of its own for the answer:
no trace tells how a later prompt would repeat it.
"""

from collections.abc import Iterable, Sequence

from cluster.planning.device_cache import CacheChanges, DeviceCache
from cluster.planning.host_cache import HostCache
from cluster.planning.job import Job

_NOTHING = CacheChanges((), ())


class JobBlocks:
    """Owns the device's cache. `first_own_key` begins a range of keys that nothing else uses."""

    def __init__(self, device: DeviceCache, block_size_tokens: int, first_own_key: int, host: HostCache | None) -> None:
        self.device = device
        self._size = block_size_tokens
        self._own_key = first_own_key
        self._host = host
        self._unsaved: list[Sequence[int]] = []

    def place(self, job: Job, reserved: int) -> bool:
        """Hold what is cached of a waiting job and allocate the rest of its prompt; False when there is no room.

        `reserved` blocks stay available. The last token is always computed, so never all of a prompt is cached.
        """
        usable = job.keys[: self._usable(job)]
        cached = usable[: self.device.prefix(usable)]
        needed = -(-job.target // self._size) - len(cached)
        if needed + self.device.idle_among(cached) + reserved > self.device.available:
            return False
        self.device.hold(cached)
        self.device.allocate(needed)
        job.blocks, job.published = needed + len(cached), len(cached)
        job.computed = len(cached) * self._size
        return True

    def loadable(self, job: Job) -> int:
        """Blocks after the cached prefix of a placed job that lie in host memory."""
        if job.supplied > job.published:
            return min(job.supplied, self._usable(job)) - job.published
        if self._host is None:
            return 0
        usable = self._usable(job)
        limit = usable if job.load_limit_tokens is None else min(usable, job.load_limit_tokens // self._size)
        return self._host.prefix(job.keys[job.published : limit])

    def publish(self, job: Job, tokens: int) -> None:
        """The first `tokens` of a job are in their blocks, or will be when this step ends."""
        full = tokens // self._size
        if full > job.published:
            self._fill(job, full)
        if self._host is not None and job.published > job.saved:
            self._unsaved.append(job.keys[job.saved : job.published])
            job.saved = job.published

    def _fill(self, job: Job, full: int) -> None:
        missing = full - len(job.keys)
        if missing > 0:
            job.keys.extend(range(self._own_key, self._own_key + missing))
            self._own_key += missing
        self.device.publish(job.keys[job.published : full])
        job.published = full

    def most_growth(self, jobs: int, steps: int) -> int:
        """No less than what it takes to decode `steps` tokens more of each of so many jobs."""
        return jobs * -(-steps // self._size)

    def growth(self, jobs: Iterable[Job], steps: int) -> int:
        """Blocks it takes to decode `steps` tokens more of each. The token made last needs none before the next."""
        size, more = self._size, steps - 1
        return sum([max(0, -(-(job.context_tokens + more) // size) - job.blocks) for job in jobs])

    def grow(self, job: Job, steps: int) -> None:
        """`steps` tokens of a job were decoded."""
        tokens = job.context_tokens + steps - 1
        grown = -(-tokens // self._size) - job.blocks
        if grown > 0:
            self.device.allocate(grown)
            job.blocks += grown
        self.publish(job, tokens)

    def release(self, job: Job) -> None:
        """A job gives up all its blocks."""
        self.device.release(job.keys[: job.published], job.blocks - job.published)
        job.blocks = job.published = job.saved = job.computed = 0

    def save(self) -> CacheChanges:
        """What was published since the last call goes to the node's memory, where there is some; what changed there."""
        unsaved, self._unsaved = self._unsaved, []
        changes = [self._host.store(keys) for keys in unsaved] if self._host is not None else []
        return _net(changes) if changes else _NOTHING

    def receive(self, keys: Sequence[int]) -> CacheChanges:
        """Another node's blocks came into this one's memory; what changed there."""
        return self._host.store(keys) if self._host is not None else _NOTHING

    def _usable(self, job: Job) -> int:
        return (job.target - 1) // self._size


def _net(changes: Sequence[CacheChanges]) -> CacheChanges:
    """Several changes, one after the other, as one."""
    if len(changes) == 1:
        return changes[0]
    here: dict[int, bool] = {}
    known: dict[int, bool] = {}
    for change in changes:
        for keys, appears in ((change.removed, False), (change.stored, True)):
            for key in keys:
                known.setdefault(key, not appears)
                here[key] = appears
    return CacheChanges(
        [key for key, is_here in here.items() if is_here and not known[key]],
        [key for key, is_here in here.items() if not is_here and known[key]],
    )
