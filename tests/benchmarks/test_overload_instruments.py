"""What the overload benchmark makes of its clients' times."""

import pytest

from tests.benchmarks.overload import Run, good_per_s, greedy_share, recovered_s, report, served, truth
from tests.benchmarks.overload_load import Kind, Try


def answered(sent_at: float, ttft_s: float, tenant: str | None = None) -> Try:
    return Try(tenant, sent_at, sent_at + ttft_s, sent_at + ttft_s + 0.5)


def refused(sent_at: float, retry_after_s: float) -> Try:
    return Try(None, sent_at, refused_at=sent_at, retry_after_s=retry_after_s, told_s=1.0)


def run(tries: list[Try], after: list[Try] | None = None, tenants: list[Try] | None = None) -> Run:
    """One request a second is what can be served; alone the first token takes a tenth of one."""
    return Run(Kind("k", 10, range(2, 3)), 0.1, 1.0, tries, after or [], tenants or [], from_s=0.0, to_s=20.0)


def test_what_the_refused_were_told_is_compared_with_when_the_last_before_them_went() -> None:
    tries = [answered(1.0, 1.6), answered(2.5, 9.0), refused(2.0, 1.0), refused(30.0, 1.0)]
    assert truth(run(tries), [1.0, 1.0]) == [pytest.approx(1.0 / 0.5)]


def test_only_what_kept_the_target_is_goodput() -> None:
    tries = [answered(float(second), 0.1 if second % 2 else 9.0) for second in range(20)]
    assert list(good_per_s(run(tries), 1.0)) == [pytest.approx(0.5)]


def test_an_answer_counts_when_it_comes_not_when_it_ends() -> None:
    tries = [Try(None, 0.0, first_at=1.0, ended_at=5.0), Try(None, 0.0, first_at=3.0)]
    assert served(tries, 2.0, 4.0) == pytest.approx(0.5)


def test_it_is_as_usual_after_the_last_one_that_was_not() -> None:
    after = [answered(21.0, 0.2), refused(22.0, 1.0), answered(23.0, 1.5), answered(24.0, 0.3)]
    assert recovered_s(run([], after)) == 3.0
    assert recovered_s(run([], after[:1])) == 0.0
    many = [answered(22.0, 0.1) for _ in range(18)]
    assert recovered_s(run([], [refused(21.0, 1.0), *many, refused(29.0, 1.0)])) == 1.0


def test_a_tenants_share_is_of_what_was_served_after_the_first_seconds() -> None:
    first = [answered(float(second), 0.1, "greedy") for second in range(5)]
    tenants = [*first, answered(6.0, 0.1, "greedy"), answered(7.0, 0.1, "greedy"), answered(8.0, 0.1, "modest")]
    assert greedy_share(run([], tenants=tenants)) == pytest.approx(2 / 3)


def test_the_report_says_all_of_it() -> None:
    tries = [answered(second / 2, 0.2, "greedy") for second in range(40)] + [refused(5.0, 0.1)]
    lines = list(report(run(tries, tries[:1], tries)))
    assert lines[0].startswith("k: 10 tokens of prompt, 2 to 2 of output")
    assert any("goodput" in line for line in lines)
