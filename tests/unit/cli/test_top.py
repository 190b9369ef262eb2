"""`fairlead top`: what a frame shows in how many columns, and frames that go on while nobody answers."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.frame import frame
from cli.screen import Screen, Style
from cli.table import Column, table
from cli.top import StatusSample, predictions
from fairlead.v1 import scheduler_pb2
from tests.services import SECRET, Stack
from tests.unit.cli.commands import Command
from tests.unit.cli.test_progress import Screen as Terminal


def busy() -> scheduler_pb2.StatusResponse:
    """Two workers, and users with long names and many digits."""
    status = scheduler_pb2.StatusResponse(policy="least-delay", clients=2)
    for number in range(2):
        model = scheduler_pb2.ModelInfo(name="smollm2-135m-instruct", kv_tokens=142_896, admission="optimistic")
        load = scheduler_pb2.Load(
            running=32,
            waiting=4096,
            kv_tokens_used=71_448,
            queue_seconds=123.45,
            step_seconds=1.2345,
            fairness_gap=812,
            fairness_bound=613_568,
            service_rate=8_192,
            prompt_tokens=10,
            cached_tokens=7,
            draining=number == 1,
            client_pages=[scheduler_pb2.PageShare(name="tenant/ann", pages=15, part=20)],
        )
        status.cluster.members.add(worker=f"worker-{number}", model=model, models=[model], load=load)
        clients = [
            scheduler_pb2.ClientService(
                client=f"tenant/{name}", service=1e9, balance=-600_000, waiting=1000, running=32, weighted_service=1e9
            )
            for name in ("ann", "a user with a name that is longer than any column")
        ]
        status.services.add(worker=f"worker-{number}", clients=clients)
    return status


@pytest.mark.parametrize("width", [80, 100, 132, 200])
def test_a_frame_fits_its_width_and_uses_what_there_is(width: int) -> None:
    lines = [text for text, _ in frame(busy(), busy(), 1.0, 20, width)]
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "#####..... 50%" in text
    assert "75      0.1%" in text, "the bound in seconds, and the gap over it"
    assert ("smollm2-135m-instruct" in text) == (width >= 132)
    assert ("longer than any column" in text) == (width >= 200)
    assert ("30/40" in text) == (width >= 100)


def test_who_waits_and_who_drains_can_be_seen() -> None:
    lines = dict(frame(busy(), busy(), 1.0, 20, 80))
    styles = {line.split()[0]: style for line, style in lines.items() if line}
    assert (styles["worker-0"], styles["worker-1"], styles["tenant/ann"]) == (Style.PLAIN, Style.DIM, Style.YELLOW)


def test_tenants_have_a_table_where_there_are_several() -> None:
    status = busy()
    status.services[0].clients.add(client="other/bob", service=1e9, waiting=1, weighted_service=1e9)
    for member in status.cluster.members:
        member.load.levels.add(level="tenant", gap=6_136)
        member.load.levels.add(level="user", gap=812)
    lines = [text.split() for text, _ in frame(status, scheduler_pb2.StatusResponse(), 1.0, 20, 200)]
    assert ["tenant", "80.0%", "4,000,000,000", "4,000,000,000", "4000", "128", "-", "########"] in lines
    assert ["other", "20.0%", "1,000,000,000", "1,000,000,000", "1", "0", "-", "##"] in lines
    assert "the tenants' Jain index" in " ".join(lines[0])
    assert [lines[3][0], *lines[3][-7:-3]] == ["worker-0", "75", "0.1%", "1.0%", "0.1%"]
    assert not any("TENANT" in text.split() for text, _ in frame(busy(), busy(), 1.0, 20, 200))


def test_users_are_ranked_by_what_they_gained_since_the_last_frame() -> None:
    def status(**services: float) -> scheduler_pb2.StatusResponse:
        clients = [scheduler_pb2.ClientService(client=name, service=got) for name, got in services.items()]
        return scheduler_pb2.StatusResponse(services=[scheduler_pb2.WorkerService(worker="w", clients=clients)])

    lines = frame(status(a=100.0, b=40.0, c=0.0), status(a=90.0, b=10.0, c=0.0), 2.0, most_users=2, width=80)
    rows = [text.split() for text, _ in lines[-3:]]
    assert rows[0][:4] == ["b", "75.0%", "15", "40"]
    assert rows[1][:4] == ["a", "25.0%", "5", "100"]
    assert rows[2] == ["and", "1", "more"]


def test_predictions_of_waits_are_compared_with_the_truth_in_all_and_lately() -> None:
    earlier, latest = (StatusSample(busy(), at, *counts) for at, counts in ((0.0, (80, 60)), (1.0, (100, 75))))
    [_, (text, _)] = predictions(latest, earlier, 80)
    assert text == "predicted waits: 75% of 100 within 25 % or 200 ms; now 75% of 20"
    assert "now" not in predictions(latest, latest, 80)[1][0], "no call has started since"
    assert predictions(StatusSample(busy(), 0.0, 0, 0), earlier, 80) == []


def test_numbers_are_never_cut_and_columns_leave_by_rank() -> None:
    columns: list[Column[int]] = [
        Column("NAME", 4, lambda row: "a long name", is_text=True),
        Column("N", 3, lambda row: str(row)),
        Column("FIRST", 5, lambda row: "x", rank=2),
        Column("LAST", 4, lambda row: "y", rank=1),
    ]
    assert table(columns, [123_456], 40) == ["NAME             N FIRST LAST", "a long name 123456     x    y"]
    assert table(columns, [123_456], 20) == ["NAME          N LAST", "a long … 123456    y"]
    assert table(columns, [123_456], 5) == ["NAME      N", "a l… 123456"]


def test_a_terminal_is_drawn_over_and_something_else_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "3")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    with Screen(terminal) as screen:
        screen.show([("one", Style.BOLD), ("two", Style.PLAIN), ("three", Style.PLAIN)])
    drawn = terminal.getvalue()
    assert "\x1b[H\x1b[1mone\x1b[0m\x1b[K\ntwo\x1b[K\x1b[J" in drawn
    assert "three" not in drawn, "it does not fit"
    assert drawn.endswith("\x1b[?25h\n"), "the cursor is back"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    try:
        stack.worker("w0", model="tiny")
        yield stack
    finally:
        stack.close()


@pytest.mark.e2e
def test_frames_go_on_while_nobody_answers(stack: Stack, tmp_path: Path) -> None:
    address = stack.scheduler.address
    stack.workers["w0"].wait_for("attached")
    top = Command(tmp_path).start("top", "--scheduler", address, "--secret", SECRET, "--every", "0.1")
    try:
        top.wait_for("w0 ")
        stack.scheduler.pause()
        top.wait_for("no answer for ")
        top.wait_for("w0 ")  # the last that is known stays
        stack.scheduler.resume()
        top.wait_for("backlogged")
        while top.said[-2] != "\n":  # the line above a frame's first says that there is no answer
            top.wait_for("backlogged")
        top.wait_for("w0 ")
        assert top.end(signal.SIGINT) == 0
        assert "Traceback" not in top.rest()
    finally:
        top.close()


@pytest.mark.e2e
def test_a_scheduler_that_never_answered_is_an_error(tmp_path: Path) -> None:
    failed = Command(tmp_path).run("top", "--scheduler", "127.0.0.1:1", "--secret", SECRET)
    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 1
