"""A pull that is under way, as its session sees it: its progress, and who waits for its end."""

import asyncio

from kvtransfer.transport import Asked, BlockSink, PullResult
from kvtransfer.transports.pull_progress import PullProgress


class OpenPull:
    """`ended` is set when it has a result, `quiet` when no lane writes for it any more."""

    def __init__(self, asked: Asked, sink: BlockSink) -> None:
        loop = asyncio.get_running_loop()
        self.progress = PullProgress(asked, sink)
        self.result: PullResult | None = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self.quiet: asyncio.Future[None] = loop.create_future()
        self.readings: list[asyncio.Task[None]] = []

    def finish(self, result: PullResult | None) -> PullResult | None:
        """Take this result, if it is one and there is none yet; the result there is."""
        if result is not None and self.result is None:
            self.result = result
            if not self.ended.done():
                self.ended.set_result(None)
        return self.result
