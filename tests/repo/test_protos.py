"""The committed stubs are what `make protos` makes of protos/."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATE = """
import sys
from pathlib import Path
sys.path.insert(0, "protos")
from generate import generate
generate(Path(sys.argv[1]))
"""


def test_generated_stubs_are_current(tmp_path: Path) -> None:
    # In a process of its own: protoc keeps what it has read.
    subprocess.run([sys.executable, "-c", GENERATE, str(tmp_path)], check=True, cwd=ROOT)
    generated = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.glob("*/*/*_pb2*")}
    folders = {Path(name).parent for name in generated}
    assert folders == {Path("fairlead/v1"), Path("serving/envoy")}
    committed = {
        str(path.relative_to(ROOT)): path.read_text() for folder in folders for path in (ROOT / folder).glob("*_pb2*")
    }
    assert generated.keys() == committed.keys()
    assert [name for name in sorted(generated) if generated[name] != committed[name]] == [], "run `make protos`"
