"""What `make mutate` reads names files and lines that exist."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MUTATION = ROOT / "tests/mutation"


def test_cores_name_modules_and_tests_that_exist() -> None:
    cores = tomllib.loads((MUTATION / "cores.toml").read_text())
    modules = [ROOT / module for core in cores.values() for module in core["modules"]]
    tests = [ROOT / "tests" / test.partition("::")[0] for core in cores.values() for test in core["tests"]]
    assert [path for path in modules + tests if not path.is_file()] == []


def test_equivalent_mutants_are_of_lines_that_exist_and_have_a_reason() -> None:
    entries = tomllib.loads((MUTATION / "equivalent.toml").read_text()).get("mutant", [])
    gone = [
        entry
        for entry in entries
        if entry["line"] not in " ".join(map(str.strip, (ROOT / entry["module"]).read_text().splitlines()))
        or not entry["reason"]
    ]
    assert gone == []


def test_every_module_of_a_core_is_in_one_entry() -> None:
    cores = tomllib.loads((MUTATION / "cores.toml").read_text())
    named = sorted(module for core in cores.values() for module in core["modules"])
    folders = (
        "gateway/core",
        "throttler/core",
        "global_scheduler/core",
        "endpoint_picker/core",
        "local_worker/core",
        "fairlead/output",
        "serving/core",
        "serving/kv_events/core",
    )
    modules = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert named == sorted(module.as_posix() for module in modules if module.name != "__init__.py")
