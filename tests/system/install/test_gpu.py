"""What an operator installs on a GPU: the worker's pins and `constraints/gpu.txt`, and nothing else.

No device is needed: everything is imported that the engine imports on CUDA, and FlashInfer writes the sources of a
kernel, which it would compile there.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.system.install.environment import ROOT, checked

pytestmark = pytest.mark.slow

PINS = ROOT / "constraints"
IMPORTS = "import local_worker.engine.flashinfer, local_worker.engine.graphs"
KERNEL = """
import torch
from flashinfer.jit.attention import gen_batch_prefill_module
half, index = torch.bfloat16, torch.int32
module = gen_batch_prefill_module("fa2", half, half, half, index, 128, 128, 0, False, False, False)
print(*sorted({source.suffix for source in module.sources}))
"""


def pinned(file: str) -> set[str]:
    """The names that a file of constraints pins, those of the files that it refers to included."""
    names = set[str]()
    for line in (PINS / file).read_text().splitlines():
        if line.startswith("-c "):
            names |= pinned(line.removeprefix("-c "))
        elif line and not line.startswith("#"):
            names.add(Requirement(line).name)
    return names


def link(name: str, folder: Path) -> None:
    """Give `folder` the files of a distribution of this environment, which has the pinned versions."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:  # what only other versions of Python need
        return
    for file in installed.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            target = folder / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(Path(str(file.locate())))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the worker's packages and those for GPUs."""
    folder = tmp_path_factory.mktemp("gpu") / "site"
    for name in pinned("worker.txt"):
        link(name, folder)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-compile",
        "--target",
        folder,
    ]
    checked([*pip, "--requirement", PINS / "gpu.txt"])
    return folder


def run(site: Path, code: str, folder: Path) -> str:
    """What Python prints that has the packages of `site` and this checkout, and no other packages."""
    paths = f"import sys; sys.path[:0] = [{str(site)!r}, {str(ROOT)!r}]\n"
    variables = [f"FLASHINFER_WORKSPACE_BASE={folder}", "FLASHINFER_CUDA_ARCH_LIST=9.0a"]
    return checked(["env", *variables, sys.executable, "-I", "-S", "-c", paths + code], folder)


def test_everything_that_cuda_needs_is_installed(site: Path, tmp_path: Path) -> None:
    run(site, IMPORTS, tmp_path)
    assert run(site, KERNEL, tmp_path).split() == [".cu"]


def test_the_check_sees_a_missing_distribution(site: Path, tmp_path: Path) -> None:
    without = f"import sys; sys.modules['pynvml'] = None\n{IMPORTS}"
    with pytest.raises(AssertionError, match="pynvml"):
        run(site, without, tmp_path)
