"""`python protos/generate.py`: writes the packages in PACKAGES, with stubs that pass `mypy --strict`."""

import re
import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).parents[1]
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"  # google/protobuf
PACKAGES = ("fairlead/v1", "serving/envoy")
KINDS = ("python", "pyi", "grpc_python")


def generate(out: Path) -> None:
    """Write the modules of all protos below `out`; raises SystemExit when protoc fails."""
    protos = sorted(str(path) for path in (ROOT / "protos").rglob("*.proto"))
    paths = [f"-I{path}" for path in (ROOT / "protos", WELL_KNOWN)]
    status = protoc.main(["", *paths, *(f"--{kind}_out={out}" for kind in KINDS), *protos])
    if status:
        raise SystemExit(status)
    for stub in [stub for package in PACKAGES for stub in (out / package).glob("*_pb2.pyi")]:
        stub.write_text(typed(stub.read_text()))


def typed(stub: str) -> str:
    """`stub` with the type arguments of Mapping, which protoc leaves out."""
    given = re.sub(r"\b_Mapping(?=\])", "_Mapping[str, _Any]", stub)
    return given if given == stub else given.replace("from typing import ", "from typing import Any as _Any, ", 1)


if __name__ == "__main__":
    generate(ROOT)
    sys.exit(0)
