"""What `fairlead status` shows of workers and clients on a terminal of 80 columns."""

from cli.status import _evicted, _members, _tenants, _users
from fairlead.v1 import scheduler_pb2

COLUMNS = 80


def member(worker: str, waits: float, rate: float = 2000.0) -> scheduler_pb2.Member:
    load = scheduler_pb2.Load(
        running=128,
        waiting=4096,
        queue_seconds=waits,
        fairness_gap=3000.0,
        fairness_bound=24000.0,
        service_rate=rate,
        kv_tokens_used=399_999,
        step_seconds=0.0123,
    )
    model = scheduler_pb2.ModelInfo(
        name="organisation-model-8b-instruct", kv_tokens=400_000, engine="vllm 0.32.0", policy="dlpm"
    )
    return scheduler_pb2.Member(worker=worker, model=model, models=[model], load=load)


def shown(*members: scheduler_pb2.Member) -> list[str]:
    status = scheduler_pb2.StatusResponse(policy="least-delay")
    status.cluster.members.extend(members)
    return _members(status, COLUMNS)


def test_a_worker_whose_requests_wait_longest_stands_first_and_a_line_fits_a_terminal() -> None:
    _, head, *rows = shown(member("worker-0", 0.5), member("worker-1", 123.4), member("worker-2", 0.0))
    assert [row.split()[0] for row in rows] == ["worker-1", "worker-0", "worker-2"]
    assert all(len(line) <= COLUMNS for line in (head, *rows)), (head, rows)
    assert head.endswith("running waiting waits s  gap s bound s state"), head


def test_gap_and_bound_are_seconds_of_a_full_worker_and_unknown_before_it_was_full() -> None:
    _, _, full, never = shown(member("full", 2.0), member("never", 1.0, rate=0.0))
    assert full.split()[-3:] == ["1.5", "12", "serving"]
    assert never.split()[-3:] == ["-", "-", "serving"]


def caching() -> scheduler_pb2.StatusResponse:
    """Two workers, of which only one tells whose pages are whose."""
    status = scheduler_pb2.StatusResponse()
    for name in ("worker-0", "worker-1"):
        load = status.cluster.members.add(worker=name).load
        load.client_pages.add(name="acme/ann", pages=1500.4, part=2000)
        load.tenant_pages.add(name="acme", pages=1500.4, part=2000)
        load.evicted_pages.add(taker="acme", owner="globex", pages=1000)
        load.evicted_pages.add(pages=1)
        service = status.services.add(worker=name)
        service.clients.add(client="acme/ann", service=1e8, balance=-12.0)
        service.clients.add(client="globex", service=1.0)
    return status


def test_pages_stand_beside_the_part_and_are_unknown_of_who_is_not_named() -> None:
    for rows in (_users(caching(), COLUMNS), _tenants(caching(), COLUMNS)):
        assert all(len(line) <= COLUMNS for line in rows), rows
        head, *lines = rows
        column = head.split().index("pages/part")
        assert [line.split()[column] for line in lines] == ["-", "3,001/4,000"], rows


def test_evictions_are_told_by_whom_against_whom_most_first() -> None:
    _, *rows = _evicted(caching(), COLUMNS)
    assert [row.split() for row in rows] == [["acme", "globex", "2,000"], ["(others)", "(others)", "2"]]
    assert _evicted(scheduler_pb2.StatusResponse(), COLUMNS) == []
