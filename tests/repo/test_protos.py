"""The committed stubs are what protoc makes of protos/."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_stubs_are_current(tmp_path: Path) -> None:
    protos = sorted(str(path) for path in (ROOT / "protos/fairlead/v1").glob("*.proto"))
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "protos"), *outputs, *protos], check=True
    )
    generated = {path.name: path.read_text() for path in (tmp_path / "fairlead/v1").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "fairlead/v1").glob("*_pb2*")}
    assert generated.keys() == committed.keys()
    assert [name for name in sorted(generated) if generated[name] != committed[name]] == []
