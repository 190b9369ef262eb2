"""lab/reproduction.md shows what the command computes today."""

import random
from pathlib import Path

import pytest

from lab.bench.machine import commit
from lab.reproduction.__main__ import main
from lab.reproduction.registry import ITEMS
from lab.reproduction.sources import Sources
from lab.reproduction.writing import titles
from tests.seed import OPTION

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[4] / "lab" / "reproduction.md"
# Items that need no data of others, of two short simulations each; the others take minutes.
QUICK = ("vtc-fig3", "vtc-fig4", "vtc-fig5", "vtc-fig6", "vtc-fig7", "vtc-fig8", "vtc-fig9", "vtc-fig10", "vtc-fig16")


def test_sections_have_the_setups_of_today() -> None:
    """Those of the VTC tables say whether the authors' requests were there; the others depend on no data."""
    shown = DOCUMENT.read_text()
    names = [name for name in ITEMS if name.startswith(("dlpm", "fairserve")) or name in QUICK]
    studies = {name: ITEMS[name].study(Sources(None, None)) for name in names}
    stale = [name for name in names if f"## {name}\n\n{ITEMS[name].source}. {studies[name].setup}\n" not in shown]
    assert not stale, "give the command these names"


def test_a_section_is_what_the_command_writes(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Which section follows from the seed of the run, so that every one has its turn."""
    seed = pytestconfig.getoption(OPTION)
    chosen = random.Random(seed).choice(QUICK)
    shown = DOCUMENT.read_text()
    assert set(QUICK) <= set(titles(shown))
    copy = tmp_path / "reproduction.md"
    copy.write_text(shown)
    assert main([chosen, "--processes", "1", "--out", str(tmp_path), "--markdown", str(copy)]) == 0
    assert copy.read_text() == shown, f"{chosen}, drawn by seed {seed}, is stale at commit {commit()}"
