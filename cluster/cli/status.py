"""`baton status`: what runs on this machine, as each run's driver last wrote it."""

import time

import typer


def status() -> None:
    """Show every running `baton serve` of this user and the state of its replicas. Exit code 1 when there is none.

    A worker that `baton drain` took out of service is `draining` while it has streams, then `drained`.
    """
    from cluster.cli.board import elapsed
    from cluster.cli.replicas import ReplicaView
    from cluster.cli.service import out_of_service
    from cluster.runtime.record import live_records

    records = live_records()
    for mark, record in records.items():
        age_s = time.time() - record["written_s"]
        print(f"{record['model']} at {record['url']}: {record['phase']} (process {mark.pid}, {age_s:.0f} s ago)")
        drained = out_of_service(record["url"])
        for replica in (ReplicaView(**one) for one in record["replicas"]):
            state = drained.get(replica.replica_id, replica.state)
            print(f"  {replica.deployment:14} {replica.replica_id:10} {state:9} {elapsed(replica, time.time())}")
    if not records:
        print("nothing runs")
        raise typer.Exit(1)
