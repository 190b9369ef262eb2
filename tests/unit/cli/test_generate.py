"""`fairlead generate` and piped `fairlead chat` against a real stack with the fake engine, whose tokens are bytes."""

import io
import json
import sys
from collections.abc import Callable, Iterator

import pytest

from cli.__main__ import main
from cli.stack import Stack

pytestmark = pytest.mark.e2e
RAW, CHAT, SYSTEM = (len(text) for text in ("hello", "user: hello\nassistant: ", "system: be brief\n"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Stack(workers=1, log_dir=tmp_path_factory.mktemp("logs"), model="tiny", engine="fake") as stack:
        yield stack.gateway


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))

    return give


@pytest.fixture
def generated(gateway: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, object]]:
    """`generate --json` with these arguments: the one object that it prints."""

    def run(*args: str) -> dict[str, object]:
        assert main(["generate", "--gateway", gateway, "--json", "--max-tokens", "12", *args]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    return run


def prompt_tokens(found: dict[str, object]) -> int:
    usage = found["usage"]
    assert isinstance(usage, dict)
    return int(usage["prompt_tokens"])


def test_the_chat_template_is_used_unless_the_prompt_is_raw(generated: Callable[..., dict[str, object]]) -> None:
    assert prompt_tokens(generated("hello")) == CHAT
    assert prompt_tokens(generated("hello", "--system", "be brief")) == SYSTEM + CHAT
    assert prompt_tokens(generated("hello", "--raw")) == RAW


@pytest.mark.parametrize("prompt", [("-",), ()])
def test_the_prompt_may_come_from_standard_input(
    generated: Callable[..., dict[str, object]], stdin: Callable[[str], None], prompt: tuple[str, ...]
) -> None:
    stdin("hello\n")
    assert prompt_tokens(generated(*prompt)) == CHAT


def test_json_holds_text_and_what_is_known_of_the_call(generated: Callable[..., dict[str, object]]) -> None:
    found = generated("hello", "--model", "tiny")
    assert (found["finish_reason"], found["model"], found["worker"]) == ("length", "tiny", "worker-0")
    assert found["request_id"]
    assert isinstance(found["text"], str)
    assert isinstance(found["token_ids"], list)
    assert len(found["token_ids"]) == 12
    assert isinstance(found["seconds"], dict)
    assert 0 <= found["seconds"]["first_token"] <= found["seconds"]["total"]
    assert isinstance(found["timings"], dict)
    assert found["timings"]["received"] <= found["timings"]["finished"]


def test_options_reach_the_model(generated: Callable[..., dict[str, object]]) -> None:
    text = generated("hello")["text"]
    assert isinstance(text, str)
    stopped = generated("hello", f"--stop={text[4:6]}")
    assert (stopped["text"], stopped["finish_reason"]) == (text[: text.index(text[4:6])], "stop")
    drawn = ["hello", "--temperature", "1", "--top-k", "50", "--top-p", "0.9", "--seed", "7"]
    assert generated(*drawn)["text"] == generated(*drawn)["text"]


def test_text_is_printed_with_a_line_end(gateway: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "hello", "--gateway", gateway, "--max-tokens", "5", "--raw"]) == 0
    said = capsys.readouterr().out
    assert len(said) == 6
    assert said.endswith("\n")


def test_an_empty_prompt_is_named(
    gateway: str, stdin: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin("")
    assert main(["generate", "--gateway", gateway]) == 1
    assert capsys.readouterr().err == "fairlead: prompt: must not be empty\n"


def test_a_refusal_is_one_line(gateway: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "hello", "--gateway", gateway, "--model", "other"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("fairlead: model: unknown model 'other'")


def test_chat_reads_lines_and_prints_answers_alone(
    gateway: str, stdin: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin("hello\n\nand more\n")
    assert main(["chat", "--gateway", gateway, "--max-tokens", "5", "--system", "be brief"]) == 0
    answers = capsys.readouterr().out.splitlines()
    assert [len(line) for line in answers] == [5, 5], "no prompts, and nothing for the empty line"


def test_piped_chat_ends_with_the_first_error(
    gateway: str, stdin: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(f"{'x' * 9000}\nhello\n")
    assert main(["chat", "--gateway", gateway, "--max-tokens", "5"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1].startswith("fairlead: prompt: at most 8176 prompt tokens")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("generate", "-"), "messages[0]: must be UTF-8, but character 3 is"),
        (("generate", "caf\udce9"), "messages[0]: must be UTF-8, but character 3 is"),
        (("generate", "caf\udce9", "--raw"), "prompt: must be UTF-8, but character 3 is"),
        (("generate", "hi", "--system", "caf\udce9"), "messages[0]: must be UTF-8, but character 3 is"),
        (("generate", "hi", "--model", "caf\udce9"), "model: must be UTF-8, but character 3 is"),
        (("chat",), "messages[0]: must be UTF-8, but character 3 is"),
        (("trace", "caf\udce9"), "the input is not UTF-8: "),
    ],
)
@pytest.mark.parametrize("errors", ["surrogateescape", "strict"])
def test_input_that_is_not_utf_8_is_refused_in_one_line(
    gateway: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    said: str,
    errors: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8", errors=errors))
    assert main([*args, "--gateway", gateway]) == 1
    [line] = capsys.readouterr().err.splitlines()
    from_stdin = args[1:] in ((), ("-",))
    assert line.startswith(f"fairlead: {'the input is not UTF-8: ' if from_stdin and errors == 'strict' else said}")
