"""Which replicas a request is not given to: those that failed it or gave it back, and, once the client has had tokens,
those that would not go on with the same ones. Pure.
"""

from routing.fleet import Fleet


class PassedBy:
    """One request's. Of replicas by another model only those count that the fleet has now."""

    def __init__(self) -> None:
        self._left: frozenset[str] = frozenset()
        self._identity = ""
        self._begun = False

    def leave(self, replica_id: str) -> None:
        """It failed the request, or gave it back."""
        self._left |= {replica_id}

    def took(self, replica_id: str, fleet: Fleet) -> None:
        """It was given the request."""
        self._identity = fleet.replicas[replica_id].model_identity

    def began(self) -> None:
        """The client has tokens of whoever was given the request last."""
        self._begun = True

    def now(self, fleet: Fleet) -> frozenset[str]:
        """All of them."""
        return self._left | self.strangers(fleet)

    def strangers(self, fleet: Fleet) -> frozenset[str]:
        """Those that are by another model than the tokens that the client has had."""
        if not self._begun:
            return frozenset()
        return frozenset(
            replica_id for replica_id, each in fleet.replicas.items() if each.model_identity != self._identity
        )

    def forgive_who_was_away(self, fleet: Fleet) -> None:
        """One that is not ready now comes back as another."""
        self._left &= {replica.replica_id for replica in fleet.replicas.values() if replica.ready}
