"""Something that moves bytes one after another: a network card, a bus."""


class Link:
    """Moves `bytes_per_s`, in the order of asking."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def move(self, count_bytes: float, available_at: float) -> float:
        """When bytes that are there from `available_at` have arrived."""
        self._free_at = max(self._free_at, available_at) + count_bytes / self._bytes_per_s
        return self._free_at

    def busy(self, seconds: float, available_at: float) -> float:
        """The same for something that takes `seconds`."""
        self._free_at = max(self._free_at, available_at) + seconds
        return self._free_at
