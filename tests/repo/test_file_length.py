"""Files stay short enough to be read in one sitting."""

from pathlib import Path

from tests.repo.test_text import ROOT, text_files

CAP = 400  # lines, as CONTRIBUTING.md says; tests and generated code may be longer


def too_long(root: Path) -> dict[str, int]:
    """The lines of each file of code that exceeds the cap, by its path below `root`."""
    lengths = {path.relative_to(root): len(path.read_text().splitlines()) for path in text_files(root)}
    return {
        str(path): lines
        for path, lines in lengths.items()
        if path.suffix == ".py"
        and lines > CAP
        and not path.is_relative_to("tests")
        and not path.stem.endswith(("_pb2", "_pb2_grpc"))
    }


def test_no_file_of_code_exceeds_the_cap() -> None:
    assert too_long(ROOT) == {}


def test_a_line_too_many_is_found(tmp_path: Path) -> None:
    for name, lines in {"short": CAP, "long": CAP + 1, "made_pb2": CAP + 1}.items():
        (tmp_path / f"{name}.py").write_text("pass\n" * lines)
    assert too_long(tmp_path) == {"long.py": CAP + 1}
