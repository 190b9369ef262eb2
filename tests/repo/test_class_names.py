"""One word means one thing: no two public classes of the product share a name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "fairlead",
    "serving",
    "gateway",
    "throttler",
    "global_scheduler",
    "local_worker",
    "engine_adapter",
    "endpoint_picker",
    "simulation",
    "cli",
)


def shared_names(root: Path) -> dict[str, list[str]]:
    """The modules of each name that several of them define; generated ones do not count."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        if "_pb2" not in path.name:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path.relative_to(root).as_posix())
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    assert shared_names(ROOT) == {}


def test_a_shared_name_is_found(tmp_path: Path) -> None:
    for package in ("gateway", "simulation"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "call.py").write_text("class Call: ...\n")
    assert shared_names(tmp_path) == {"Call": ["gateway/call.py", "simulation/call.py"]}
