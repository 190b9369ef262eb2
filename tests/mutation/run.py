"""`make mutate`: change cores in small wrong ways and count which changes their tests notice.

It runs in the environment of Cosmic Ray on a copy of the working tree, so that a run that is killed leaves no mutant
behind and the tree may change meanwhile. The tests run in the environment of development.
"""

import argparse
import difflib
import os
import random
import shutil
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome
from mutants import Mutant, mutant, positions

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TREE = ROOT / "build" / "mutated"
REPORT = ROOT / "build" / "mutation.md"
SEED = 1
PYTEST = "-m pytest -q -x -p no:cacheprovider --hypothesis-profile mutation --hypothesis-seed 0"
MARKS = "-m 'not e2e and not model and not slow'"


@dataclass
class Core:
    """A core under test and what became of its mutants."""

    name: str
    modules: list[str]
    tests: list[str]
    mutants: int = 0
    killed: int = 0
    timeouts: int = 0  # of those killed
    equivalent: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def score(self) -> float:
        """Share of the mutants tried, without the equivalent ones, that the tests noticed; in percent."""
        return 100 * self.killed / max(1, self.killed + len(self.survivors))

    def row(self) -> str:
        """Return the core's line of the table."""
        tried = self.killed + self.equivalent + len(self.survivors)
        cells = [self.name, self.mutants, tried, self.killed, self.timeouts, len(self.survivors), self.equivalent]
        return f"| {' | '.join(map(str, cells))} | {self.score:.1f} % |"


def main() -> int:
    """Mutate the chosen cores, rewrite the report after each, and fail if a mutant survived."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cores", nargs="*", help="names in cores.toml; all without")
    parser.add_argument("--sample", type=int, help="mutants of each core, drawn at random; all without")
    parser.add_argument(
        "--seconds", type=float, help="time limit for one mutant; without, 5 s and 4 times what its tests take"
    )
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="interpreter that runs the tests")
    options = parser.parse_args()
    known = tomllib.loads((HERE / "cores.toml").read_text())
    if unknown := set(options.cores) - known.keys():
        parser.error(f"no such core: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    entries = tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutant", [])
    equivalent = {(entry["module"], entry["line"], entry["mutant"]) for entry in entries}
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(ROOT, TREE, ignore=shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info"))
    os.chdir(TREE)
    cores = [Core(name, **known[name]) for name in options.cores or known]
    for number, core in enumerate(cores, 1):
        tests = " ".join(f"tests/{path}" for path in core.tests)
        try_out(core, f"{options.python} {PYTEST} {MARKS} {tests}", options.sample, options.seconds, equivalent)
        REPORT.write_text(report(cores[:number]))
    print(f"{REPORT.relative_to(ROOT)} names the survivors")
    return any(core.survivors for core in cores)


def try_out(
    core: Core, command: str, sample: int | None, seconds: float | None, equivalent: set[tuple[str, str, str]]
) -> None:
    """Run `command` on the core as it is, which must pass, and on its mutants, or on `sample` of them."""
    began = time.monotonic()
    outcome, output = run_tests(command, timeout=600)
    if outcome != TestOutcome.SURVIVED:
        sys.exit(f"the tests of {core.name} fail without a mutant:\n{output}")
    limit = seconds or 5 + 4 * (time.monotonic() - began)
    found = [position for module in core.modules for position in positions(TREE, module)]
    core.mutants = len(found)
    for position in random.Random(SEED).sample(found, min(sample or core.mutants, core.mutants)):
        made = mutant(TREE, *position)
        if made.key in equivalent:
            core.equivalent += 1
            continue
        path = TREE / made.module
        code = path.read_text()
        path.write_text(made.source)
        outcome, output = run_tests(command, limit)
        path.write_text(code)
        if outcome == TestOutcome.SURVIVED:
            core.survivors.append(made)
            print(f"  survived: {made.module}:{made.number}: {made.line}  →  {made.mutant}", flush=True)
        else:
            core.killed += 1
            core.timeouts += output == "timeout"
    print(core.row(), flush=True)


def report(cores: list[Core]) -> str:
    """Return the table and a diff of every survivor, as Markdown."""
    lines = [
        "| core | mutants | tried | killed | of those by time | survived | equivalent | score |",
        "|---|" + "---:|" * 7,
    ]
    lines += [core.row() for core in cores]
    for survivor in (survivor for core in cores for survivor in core.survivors):
        before = (TREE / survivor.module).read_text().splitlines()
        diff = difflib.unified_diff(
            before, survivor.source.splitlines(), survivor.module, survivor.operator, lineterm=""
        )
        lines += ["", "```diff", *diff, "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
