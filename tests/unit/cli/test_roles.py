"""Lending by hand: whom it takes, what it refuses, how it is shown."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import typer

from cluster.cli.roles import RoleView, history, lend, lend_one, table, unpin
from cluster.dataplane.frames import Role
from cluster.pools.scaling import ScalingChange
from cluster.workers.lent_role import RoleChange


def view(name: str, role: Role, running: int = 0, **more: object) -> RoleView:
    shown = RoleView(name, role, role, False, (), True, False, running, 0, 0, 0, 0.25)
    return replace(shown, **more)  # type: ignore[arg-type]


class Workers:
    def __init__(self, *views: RoleView) -> None:
        self._views = {one.replica_id: one for one in views}

    def views(self) -> Sequence[RoleView]:
        return list(self._views.values())

    def lend(self, replica_id: str, role: Role, pinned: bool, why: str) -> None:
        self._views[replica_id] = replace(self._views[replica_id], role=role, pinned=pinned)


def test_those_with_least_to_finish_are_lent() -> None:
    workers = Workers(view("p", "prefill"), view("d0", "decode", 3), view("d1", "decode", 1), view("d2", "decode", 2))
    assert lend(workers, 2, "prefill", pinned=False) == ["d1", "d2"]
    assert table(workers.views()).splitlines()[:2] == [
        "3P1D in service",
        "  decode   d0         3 running, 0 waiting, 0 held, 0 prompt tokens queued, KV 25 %",
    ]


def test_one_decodes_always() -> None:
    workers = Workers(view("p", "prefill"), view("d", "decode"))
    with pytest.raises(typer.BadParameter, match="only 0: one has to decode"):
        lend(workers, 1, "prefill", pinned=False)
    with pytest.raises(typer.BadParameter, match="last worker in service"):
        lend_one(workers, "d", "prefill", pinned=False)
    assert lend_one(workers, "p", "decode", pinned=False) == "p"
    assert lend_one(workers, "d", "prefill", pinned=False) == "d"


def test_a_name_that_is_nobodys_or_more_than_ones_is_refused() -> None:
    workers = Workers(view("d0", "decode"), view("d1", "decode"))
    for name in ("x", "d"):
        with pytest.raises(typer.BadParameter, match="there are: d0, d1"):
            lend_one(workers, name, "prefill", pinned=False)


def test_who_is_pinned_stays_until_unpinned() -> None:
    workers = Workers(view("d0", "decode"), view("d1", "decode"), view("d2", "decode"))
    assert lend(workers, 1, "prefill", pinned=True) == ["d0"]
    with pytest.raises(typer.BadParameter, match="1 cannot be lent to decode, only 0"):
        lend(workers, 1, "decode", pinned=False)
    assert "lent, started for decode; pinned" in table(workers.views())
    assert unpin(workers) == ["d0"]
    assert lend(workers, 1, "decode", pinned=False) == ["d0"]


def test_history_is_in_order_of_time() -> None:
    first, second = RoleChange(10.0, "prefill", False, "short"), RoleChange(20.0, "decode", True, "by hand")
    views = [view("a", "decode", role_history=(second,)), view("b", "prefill", role_history=(first,))]
    lines = history(views, [ScalingChange(15.0, "1P1D to 2P3D started")])
    assert [line.split(maxsplit=2)[2] for line in lines.splitlines()] == [
        "b          now does prefill: short",
        "pools      1P1D to 2P3D started",
        "a          pinned to decode: by hand",
    ]
