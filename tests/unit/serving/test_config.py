"""Where a setting comes from, and what is refused."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.config import ConfigError, load, option, options, require
from serving.environment import ServiceName


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    name: str = option("default", "a text")
    count: int = option(1, "a number")
    ratio: float = option(0.5, "a fraction")
    enabled: bool = option(False, "a switch")
    policy: str = option("fair", "a choice", choices=("fair", "fifo"))
    seconds: float = 30.0

    def __post_init__(self) -> None:
        require(self.count > 0, f"count: must be above 0, got {self.count}")


def settings(*argv: str, **environ: str) -> Settings:
    return load(Settings, ServiceName.WORKER, argv, environ, prog="test")


def yaml_file(folder: Path, text: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(text)
    return str(path)


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "name: file\ncount: 2\nratio: 0.25\n")
    own = {"FAIRLEAD_WORKER_NAME": "environment", "FAIRLEAD_WORKER_COUNT": "3"}
    found = settings("--config", path, "--name", "flag", **own)
    assert found == Settings(name="flag", count=3, ratio=0.25, enabled=False)


def test_the_file_may_be_named_by_the_environment_and_the_flag_wins(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "count: 7")
    other = tmp_path / "other.yaml"
    other.write_text("count: 8")
    assert settings(FAIRLEAD_WORKER_CONFIG=path).count == 7
    assert settings("--config", str(other), FAIRLEAD_WORKER_CONFIG=path).count == 8


def test_help_names_defaults_choices_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        settings("--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--count VALUE a number (default: 1)" in text
    assert "--policy VALUE a choice (fair, fifo; default: fair)" in text
    assert "--enabled, --no-enabled a switch (default: off)" in text
    assert "--listen is FAIRLEAD_WORKER_LISTEN" in text


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert settings("--config", yaml_file(tmp_path, "# nothing yet\n")) == Settings()


@pytest.mark.parametrize(
    ("word", "value"), [("true", True), ("Yes", True), ("1", True), ("FALSE", False), ("0", False)]
)
def test_words_switch_in_file_and_environment(word: str, value: bool) -> None:
    assert settings(FAIRLEAD_WORKER_ENABLED=word).enabled is value


def test_flags_switch_by_themselves() -> None:
    assert settings("--enabled").enabled
    assert not settings("--no-enabled", FAIRLEAD_WORKER_ENABLED="true").enabled


@pytest.mark.parametrize("argv", [("--enabled", "true"), ("--enabled=true",)])
def test_a_value_after_a_switch_is_refused_with_what_to_write(argv: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"^--enabled: takes no value, got 'true'; write --enabled or --no-enabled$"):
        settings(*argv)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nmae: x", "unknown key 'nmae'; known keys: count, enabled, name, policy, ratio"),
        ("count: 1\ncount: 2", ":2: count: given twice"),
        ("count: many", "count: expected a whole number, got 'many'"),
        ("count: 1.5", "count: expected a whole number, got 1.5"),
        ("count: true", "count: expected a whole number, got True"),
        ("ratio: true", "ratio: expected a number, got True"),
        ("enabled: perhaps", "enabled: expected true or false, got 'perhaps'"),
        ("name: [a]", "name: expected a text, got ['a']"),
        ("- a list", "expected a mapping at the top, got list"),
        ("count: 1\nname: {", "settings.yaml:2: is no YAML: expected the node content, but found '<stream end>'"),
        ("count: 1\n\tname: x", "settings.yaml:2: is no YAML: found character '\\t' that cannot start any token"),
        ("policy: lifo", ":1: policy: must be one of fair, fifo, got 'lifo'"),
        ("\nname: 2026-13-45", ":2: name: cannot be read: month must be in 1..12"),
        ("name: !acme x", ":1: name: cannot be read: could not determine a constructor for the tag '!acme'"),
        ("count: 2147483648", ":1: count: must be a number of at most 2147483647, got 2147483648"),
        ("ratio: .nan", ":1: ratio: must be a number of at most 2147483647, got nan"),
        ("ratio: .inf", ":1: ratio: must be a number of at most 2147483647, got inf"),
        (f"ratio: {'9' * 400}", ":1: ratio: expected a number, got 9"),
        (f"count: 0x{'9' * 5000}", ":1: count: cannot be read"),
        ("[" * 3000, "is no YAML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, expected: str) -> None:
    path = yaml_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        settings("--config", path)
    assert str(caught.value).startswith(path)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"settings\.yaml: .*utf-8"):
        settings("--config", str(path))


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        settings("--config", str(tmp_path / "absent.yaml"))


def test_a_wrong_value_names_where_it_came_from() -> None:
    with pytest.raises(ConfigError, match=r"^FAIRLEAD_WORKER_COUNT: expected a whole number, got 'x'$"):
        settings(FAIRLEAD_WORKER_COUNT="x")
    with pytest.raises(ConfigError, match=r"^--count: expected a whole number, got 'y'$"):
        settings("--count", "y")
    with pytest.raises(ConfigError, match=r"^--policy: must be one of fair, fifo, got 'lifo'$"):
        settings("--policy", "lifo")
    with pytest.raises(ConfigError, match=r"^count: must be above 0, got 0$"):
        settings("--count", "0")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("--nmae", "x"), "--nmae: no such option; nearest: --name"),
        (("--nam=x",), "--nam: no such option; nearest: --name"),
        (("stray",), "stray: no such option; see --help"),
        (("--name",), "argument --name: expected one argument"),
    ],
)
def test_an_unknown_option_is_refused_in_one_line(argv: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(*argv)
    assert str(caught.value) == complaint


def test_a_constant_is_no_option(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "seconds: 1")
    for argv, environ in (
        (["--seconds", "1"], {}),
        (["--config", path], {}),
        ([], {"FAIRLEAD_WORKER_SECONDS": "1"}),
    ):
        with pytest.raises(ConfigError, match=r"no such option|unknown key|no such variable"):
            settings(*argv, **environ)
    assert load(Settings, ServiceName.WORKER, [], {}, prog="test", seconds=1.0).seconds == 1.0


def test_a_files_complaints_name_the_line(tmp_path: Path) -> None:
    for text, complaint in (
        ("name: x\n\ncount: many\n", ":3: count"),
        ("name: x\nnmae: y\n", ":2: unknown key 'nmae'"),
    ):
        with pytest.raises(ConfigError) as raised:
            settings("--config", yaml_file(tmp_path, text))
        assert f"settings.yaml{complaint}" in str(raised.value)


@pytest.mark.parametrize("cls", [GatewayConfig, SchedulerConfig, WorkerConfig])
def test_no_service_takes_numbers_or_ports_that_fail_later(cls: type[GatewayConfig]) -> None:
    flags = [("--" + field.name.replace("_", "-"), field.type) for field in options(cls)]
    wrong = [(flag, value) for flag, kind in flags if kind in (int, float) for value in ("99999999999", "nan", "inf")]
    wrong += [(flag, "127.0.0.1:99999") for flag in ("--listen", "--metrics", "--health-listen")]
    for flag, value in wrong:
        with pytest.raises(ConfigError) as raised:
            load(cls, ServiceName.GATEWAY, [flag, value, "--secret", "sixteen letters!"], {}, prog="test")
        assert flag.strip("-").replace("-", "_") in str(raised.value).replace("-", "_")
        assert value in str(raised.value)


def test_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """A tenant would else have another name on a machine whose locale is Latin-1."""
    file = tmp_path / "config.yaml"
    file.write_text("name: Zo\u00eb", "utf-8")
    program = f"from serving.document import text_of; print(ascii(text_of({str(file)!r})))"
    locale = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **locale})
    assert done.stdout == "'name: Zo\\xeb'\n", done.stderr
