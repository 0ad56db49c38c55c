"""Which workers exist, from what their replicas have recorded."""

from cluster.gateway.roster import Roster, addresses


def test_only_replicas_that_have_said_where_they_listen_count():
    metadata = [{"baton": {"replica_id": "a", "address": "10.0.0.1:7"}}, {}, {"other": {}}]
    assert addresses(metadata) == {"a": "10.0.0.1:7"}


def test_each_change_reports_the_workers_of_all_deployments():
    seen = []
    roster = Roster(seen.append)
    roster.replace("PrefillWorker", {"p": "h:1"})
    roster.replace("DecodeWorker", {"d": "h:2"})
    roster.replace("PrefillWorker", {})
    assert seen == [{"p": "h:1"}, {"p": "h:1", "d": "h:2"}, {"d": "h:2"}]


def test_an_unchanged_list_reports_nothing():
    seen = []
    roster = Roster(seen.append)
    roster.replace("DecodeWorker", {"d": "h:2"})
    roster.replace("DecodeWorker", {"d": "h:2"})
    assert len(seen) == 1
