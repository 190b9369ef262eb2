"""`make mutate`: change cores in small wrong ways and count which changes their tests notice.

It runs in the environment of Cosmic Ray on a copy of the working tree, so that a run that is killed leaves no mutant
behind and the tree may change meanwhile. The tests run in the environment of development. What became of each core is
kept in build/mutation/, and the report is put together from what is there: the cores can be run one after the other.
"""

import argparse
import difflib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from imports import unaffected
from mutants import Mutant, mutants

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "build" / "mutation"
REPORT = ROOT / "build" / "mutation.md"
SEED = 1
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py::.*?)(?: - .*)?$", re.MULTILINE)
FEW, ALL = 10, 10**6  # examples that Hypothesis draws at most: few find most mutants
LEFT_OUT = ("e2e", "model", "slow")  # marks of tests that do not run, unless a core names them in `marks`
KILLERS = 3  # tests that are tried before all others: those that have killed most of the core's mutants so far


class TestServer:
    """The process that runs the tests (fork_server.py); its runs find the modules `loaded` in memory."""

    def __init__(self, python: str, loaded: Collection[str]) -> None:
        command = [python, str(HERE / "fork_server.py"), *loaded]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, selection: "Selection", limit: int) -> "TestRun":
        """Run the tests for at most `limit` seconds of processor time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {**asdict(selection), "seconds": limit}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return TestRun(**json.loads(self._process.stdout.readline()))


@dataclass(frozen=True)
class Selection:
    """Tests to run: files or names, of which those match whose names match `keyword`."""

    tests: list[str]
    keyword: str = ""
    marks: str = ""  # those that match this expression
    first: list[str] = field(default_factory=list)  # names of tests that run before all others
    examples: int = ALL


@dataclass(frozen=True)
class TestRun:
    """What a run of pytest gave."""

    status: int | None  # None beyond the limit
    seconds: float  # of processor time
    output: str


@dataclass(frozen=True)
class Survivor:
    """A mutant that no test noticed."""

    module: str
    line: str
    mutant: str
    place: int  # among the mutants of equal lines
    diff: str


@dataclass
class Score:
    """What became of a core's mutants."""

    core: str
    mutants: int
    killed: int = 0
    timeouts: int = 0  # of those killed
    equivalent: int = 0
    survivors: list[Survivor] = field(default_factory=list)

    @property
    def row(self) -> str:
        """The core's line of the table; the score is of the mutants tried, without the equivalent ones."""
        tried = self.killed + self.equivalent + len(self.survivors)
        score = 100 * self.killed / max(1, self.killed + len(self.survivors))
        cells = [self.core, self.mutants, tried, self.killed, self.timeouts, len(self.survivors), self.equivalent]
        return f"| {' | '.join(map(str, cells))} | {score:.1f} % |"

    def save(self) -> None:
        """Keep the score for the report."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.core}.json").write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def saved(cls, core: str) -> "Score | None":
        """Return the score that was kept, None if there is none."""
        path = RESULTS / f"{core}.json"
        if not path.exists():
            return None
        values = json.loads(path.read_text())
        return cls(**{**values, "survivors": [Survivor(**survivor) for survivor in values["survivors"]]})


def main() -> int:
    """Mutate the chosen cores, rewrite the report after each, and fail if a mutant survived."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cores", nargs="*", help="names in cores.toml; all without")
    parser.add_argument("--sample", type=int, help="mutants of each core, drawn at random; all without")
    parser.add_argument(
        "--since", metavar="COMMIT", help="only the mutants of lines that were not there at this commit"
    )
    parser.add_argument("--again", action="store_true", help="only the mutants that survived the run before")
    parser.add_argument(
        "--seconds", type=int, help="processor time for one mutant; without, 2 s and 4 times what its tests take"
    )
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="interpreter that runs the tests")
    options = parser.parse_args()
    known = tomllib.loads((HERE / "cores.toml").read_text())
    if unknown := set(options.cores) - known.keys():
        parser.error(f"no such core: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="mutated-", dir=ROOT / "build") as tree:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
        shutil.copytree(ROOT, tree, ignore=left_out, dirs_exist_ok=True)
        os.chdir(tree)
        compile_sources(options.python)
        return mutate(options, known)


def compile_sources(python: str) -> None:
    """Compile the working directory for `python`, so that a run of the tests compiles the mutated module alone.

    Each compiled file names the hash of its source, which the mutated module no longer has. Times and sizes, by which
    Python compares otherwise, may be those of the mutant before.
    """
    options = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([python, *options, "."], check=True)


def mutate(options: argparse.Namespace, known: dict[str, dict[str, list[str]]]) -> int:
    """Mutate the chosen cores in the working directory; return whether a mutant survived."""
    failed = False
    for name in options.cores or known:
        tests = [Path("tests", test.partition("::")[0]) for test in known[name]["tests"]]
        server = TestServer(options.python, unaffected(tests, [Path(module) for module in known[name]["modules"]]))
        trial = Trial(name, known[name], server, options.seconds)
        score = trial.again(Score.saved(name)) if options.again else trial.run(options.sample, options.since)
        score.save()
        failed |= bool(score.survivors)
        print(score.row, flush=True)
        REPORT.write_text(report(list(filter(None, map(Score.saved, known)))))
    print(f"{REPORT.relative_to(ROOT)} names the survivors")
    return failed


class Trial:
    """A core's mutants and the tests that must notice them; the tests must pass on the core as it is."""

    def __init__(self, core: str, entry: dict[str, list[str]], server: TestServer, seconds: int | None) -> None:
        self._core = core
        others = [f"[{policy}" for policy in entry.get("other_policies", [])]
        keyword = f"not ({' or '.join(others)})" if others else ""
        marks = " and ".join(f"not {mark}" for mark in LEFT_OUT if mark not in entry.get("marks", []))
        self._tests = Selection([f"tests/{test}" for test in entry["tests"]], keyword, marks)
        self._server = server
        self._killers = Counter[str]()
        self._mutants = [made for module in entry["modules"] for made in mutants(Path(), module)]
        entries = tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutant", [])
        self._equivalent = {(entry["module"], entry["line"], entry["mutant"]) for entry in entries}
        self._limits: dict[int, int] = {}  # by number of examples: seconds for the tests of one mutant
        for examples in (FEW, ALL):
            unchanged = server.run(replace(self._tests, examples=examples), 600)
            if unchanged.status != 0:
                sys.exit(f"the tests of {core} fail without a mutant:\n{unchanged.output}")
            self._limits[examples] = seconds or round(2 + 4 * unchanged.seconds)
        print(f"{core}: {len(self._mutants)} mutants, {unchanged.seconds:.1f} s of tests", flush=True)

    def run(self, sample: int | None, since: str | None) -> Score:
        """Try all mutants, or those of lines that were not there at the commit `since`, or a sample."""
        chosen = self._mutants
        if since is not None:
            before = {module: lines_at(since, module) for module in {made.module for made in chosen}}
            chosen = [made for made in chosen if made.line not in before[made.module]]
        score = Score(self._core, len(self._mutants))
        for made in random.Random(SEED).sample(chosen, min(sample or len(chosen), len(chosen))):
            self._try(made, score)
        return score

    def again(self, before: Score | None) -> Score:
        """Try the survivors of a run again, after tests were written for them."""
        if before is None:
            sys.exit(f"{self._core} has not been run yet")
        survivors = {(each.module, each.line, each.mutant, each.place) for each in before.survivors}
        score = Score(self._core, len(self._mutants), before.killed, before.timeouts, before.equivalent)
        for made in self._mutants:
            if (*made.key, made.place) in survivors:
                self._try(made, score)
        return score

    def _try(self, made: Mutant, score: Score) -> None:
        if made.key in self._equivalent:
            score.equivalent += 1
            return
        path = Path(made.module)
        code = path.read_text()
        path.write_text(made.source)
        status = self._notice()
        path.write_text(code)
        if status == 0:
            before, after = code.splitlines(), made.source.splitlines()
            diff = "\n".join(difflib.unified_diff(before, after, made.module, made.operator, lineterm=""))
            score.survivors.append(Survivor(made.module, made.line, made.mutant, made.place, diff))
            print(f"  survived: {made.module}:{made.number}: {made.line}  →  {made.mutant}", flush=True)
        else:
            score.killed += 1
            score.timeouts += status is None

    def _notice(self) -> int | None:
        """Return pytest's status of the first tests that fail: with few examples, or with all of them."""
        killers = [test for test, _ in self._killers.most_common(KILLERS)]
        for examples, limit in self._limits.items():
            run = self._server.run(replace(self._tests, first=killers, examples=examples), limit)
            if run.status != 0:
                self._killers.update(FAILED.findall(run.output))
                break
        return run.status


def lines_at(commit: str, module: str) -> str:
    """Return the lines of `module` at `commit`, without indentation, joined by spaces; none if it was not there."""
    subprocess.run(["git", "rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}"], check=True, capture_output=True)
    shown = subprocess.run(["git", "show", f"{commit}:{module}"], check=False, capture_output=True, text=True)
    return " ".join(map(str.strip, shown.stdout.splitlines()))


def report(scores: list[Score]) -> str:
    """Return the table and a diff of every survivor, as Markdown."""
    lines = [
        "| core | mutants | tried | killed | of those by time | survived | equivalent | score |",
        "|---|" + "---:|" * 7,
        *[score.row for score in scores],
    ]
    for score in scores:
        for survivor in score.survivors:
            lines += ["", "```diff", survivor.diff, "```"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
