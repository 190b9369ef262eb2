"""One node's network: a bridge, a namespace per pod, addresses for Services, and names that all of them resolve."""

import asyncio
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BRIDGE = "br0"
NAME_SECONDS = 5.0  # for so long CoreDNS, by default, repeats an address that is not true any more
POLICIES = 99  # the origin that our rules carry, by which they are found again


class Closed(NamedTuple):
    """A TCP port of every address of a subnet."""

    subnet: str
    port: int


class Interface:
    """A pod's network namespace and its address; `closed` is what the pod may not connect to."""

    def __init__(self, number: int, address: str, closed: Sequence[Closed]) -> None:
        self.netns, self.address = f"pod{number}", address
        self._outside = f"veth{number}"
        self._closed = closed
        self._is_up = False

    async def up(self) -> None:
        """Make the namespace; until then there is none to run in."""
        await _batch(
            f"netns add {self.netns}",
            f"link add {self._outside} type veth peer name eth0 netns {self.netns}",
            f"link set {self._outside} master {BRIDGE} up",
        )
        inside = (f"addr add {self.address}/16 dev eth0", "link set eth0 up", "link set lo up")
        await _batch(*inside, "route add default via 10.77.0.1", netns=self.netns)
        self._is_up = True
        await self.close(self._closed)

    async def down(self) -> None:
        """Its address answers nothing any more, not even with a refusal."""
        await _batch(f"link del {self._outside}")

    async def close(self, closed: Sequence[Closed]) -> None:
        """From now on the pod connects to none of these, and to everything else."""
        self._closed = closed
        if self._is_up:
            rules = [f"rule add to {subnet} ipproto tcp dport {port} prohibit" for subnet, port in closed]
            added = [f"{rule} protocol {POLICIES}" for rule in rules]
            await _batch(f"rule flush protocol {POLICIES}", *added, netns=self.netns)


class Network:
    """Of the namespaces that this process is in; needs iproute2. `hosts` is every pod's /etc/hosts."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts
        self._names: dict[str, str] = {"localhost": "127.0.0.1"}
        self._pods = 0
        self._workloads: list[str] = []
        self._services: dict[str, str] = {}
        hosts.write_text("")
        # This process resolves names as pods do; nobody outside its mount namespace sees it.
        subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)
        for command in ("link set lo up", f"link add {BRIDGE} type bridge", f"addr add 10.77.0.1/16 dev {BRIDGE}"):
            subprocess.run(["ip", *command.split()], check=True)
        subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)

    def add_pod(self, workload: str, closed: Sequence[Closed]) -> Interface:
        """A new pod's place in the network."""
        self._pods += 1
        return Interface(self._pods, f"10.77.{self._number(workload)}.{self._pods}", closed)

    def subnet(self, workload: str) -> str:
        """Where all its pods have their addresses."""
        return f"10.77.{self._number(workload)}.0/24"

    async def add_service(self, name: str) -> str:
        """A cluster address that pods reach as `name`."""
        address = self._services[name] = f"10.96.0.{len(self._services) + 1}"
        await _batch(f"addr add {address}/32 dev {BRIDGE}")
        self.name(name, address)
        return address

    def name(self, host: str, address: str) -> None:
        """`host` resolves to `address`: from now on, or, where it has resolved to another, when caches have run out."""
        delay = NAME_SECONDS if host in self._names else 0.0
        asyncio.get_running_loop().call_later(delay, self._resolve, host, address)

    def _number(self, workload: str) -> int:
        if workload not in self._workloads:
            self._workloads.append(workload)
        return 1 + self._workloads.index(workload)

    def _resolve(self, host: str, address: str) -> None:
        self._names[host] = address
        text = "".join(f"{address} {host}\n" for host, address in self._names.items())
        # One write to the file that is mounted everywhere: readers see the old or the new names, never half of them.
        with self.hosts.open("r+b") as file:
            length = file.seek(0, os.SEEK_END)
            os.pwrite(file.fileno(), text.encode().ljust(length, b"\n"), 0)


async def _batch(*commands: str, netns: str = "") -> None:
    """Run `ip` once, and let connections go on meanwhile: this process carries them."""
    options = ("-n", netns) if netns else ()
    process = await asyncio.create_subprocess_exec("ip", *options, "-batch", "-", stdin=asyncio.subprocess.PIPE)
    await process.communicate("\n".join(commands).encode())
    assert process.returncode == 0, commands
