"""A container without an image: this machine's programs in a read-only root with the pod's volumes, in its network."""

import asyncio
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[4]
# Where this test's virtual environment stands in for the base image's Python, and this checkout for the image's folder.
PREFIX, APP = "/opt/fairlead", "/app"
BASE_PATH = f"{PREFIX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# $1 = the new root, then pairs of source and mount point up to "--", then the command.
ENTER = """
set -eu
root=$1; shift
mount -t tmpfs tmpfs "$root"
mkdir -p "$root/usr" "$root/etc" "$root/proc" "$root/dev" "$root/tmp"
for link in bin sbin lib lib64; do test ! -L "/$link" || ln -s "usr/$link" "$root/$link"; done
for kept in /usr /proc /dev; do mount --rbind "$kept" "$root$kept"; done
cp /etc/passwd /etc/nsswitch.conf /etc/ld.so.cache "$root/etc/"
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; touch "$root$2"; fi
  mount --rbind "$1" "$root$2"
  shift 2
done
shift
mount -o remount,ro "$root"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Everything that is needed to start it, again and again."""

    netns: str
    command: Sequence[str]
    environment: Mapping[str, str]
    mounts: Mapping[str, Path]  # mount point -> what is there
    log: Path

    async def start(self) -> asyncio.subprocess.Process:
        """The process that runs the command; it can be signalled like a container's."""
        root = self.log.with_suffix(".root")
        root.mkdir(exist_ok=True)
        pairs = [part for target, source in self._mounts().items() for part in (str(source), target)]
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", self.netns, "nice", "-n", str(-os.nice(0))),
                *("sh", "-c", ENTER, "enter", str(root), *pairs, "--"),
                *self.command,
                env={**image_environment(), **self.environment},
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def execute(self, *command: str) -> tuple[int, str]:
        """Run a command in the container's network, with this machine's files; return its status and what it prints."""
        process = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", self.netns, *command),
            env={**os.environ, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    def _mounts(self) -> dict[str, Path]:
        python = {PREFIX: Path(sys.prefix), APP: ROOT}
        base = os.path.realpath(sys.base_prefix)
        if not base.startswith("/usr"):
            python[base] = Path(base)
        return {**python, **self.mounts}


def image_environment() -> dict[str, str]:
    """What the base image and the last stage of a Dockerfile set."""
    text = (ROOT / "deploy/docker/Dockerfile.control-plane").read_text()
    pairs = re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", text.rpartition("\nFROM ")[2], re.MULTILINE)))
    return {"PATH": BASE_PATH} | {name: value.replace("$PATH", BASE_PATH) for name, value in pairs}
