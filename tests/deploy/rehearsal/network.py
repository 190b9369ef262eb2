"""One node's network: a bridge, a namespace per pod, addresses for Services, and names that all of them resolve."""

import asyncio
import os
import subprocess
from pathlib import Path

BRIDGE = "br0"
NAME_SECONDS = 5.0  # for so long CoreDNS, by default, repeats an address that is not true any more


class Network:
    """Of the namespaces that this process is in; needs iproute2. `hosts` is every pod's /etc/hosts."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts
        self._names: dict[str, str] = {"localhost": "127.0.0.1"}
        self._pods = 0
        self._services = 0
        hosts.write_text("")
        # This process resolves names as pods do; nobody outside its mount namespace sees it.
        _run("mount", "--bind", str(hosts), "/etc/hosts")
        _ip("link set lo up")
        _ip(f"link add {BRIDGE} type bridge")
        _ip(f"addr add 10.77.0.1/16 dev {BRIDGE}")
        _ip(f"link set {BRIDGE} up")

    def add_pod(self) -> tuple[str, str]:
        """A new network namespace; returns its name and its address."""
        self._pods += 1
        number, address = self._pods, f"10.77.1.{self._pods}"
        name = f"pod{number}"
        _ip(f"netns add {name}")
        _ip(f"link add veth{number} type veth peer name eth0 netns {name}")
        _ip(f"link set veth{number} master {BRIDGE} up")
        for command in (f"addr add {address}/16 dev eth0", "link set eth0 up", "link set lo up"):
            _ip(f"-n {name} {command}")
        _ip(f"-n {name} route add default via 10.77.0.1")
        return name, address

    def remove_pod(self, name: str) -> None:
        """Its address answers nothing any more, not even with a refusal."""
        _ip(f"link del {name.replace('pod', 'veth')}")

    def add_service(self, name: str) -> str:
        """A cluster address that pods reach as `name`."""
        self._services += 1
        address = f"10.96.0.{self._services}"
        _ip(f"addr add {address}/32 dev {BRIDGE}")
        self.name(name, address)
        return address

    def name(self, host: str, address: str) -> None:
        """`host` resolves to `address`: from now on, or, where it has resolved to another, when caches have run out."""
        delay = NAME_SECONDS if host in self._names else 0.0
        asyncio.get_running_loop().call_later(delay, self._resolve, host, address)

    def _resolve(self, host: str, address: str) -> None:
        self._names[host] = address
        text = "".join(f"{address} {host}\n" for host, address in self._names.items())
        # One write to the file that is mounted everywhere: readers see the old or the new names, never half of them.
        with self.hosts.open("r+b") as file:
            length = file.seek(0, os.SEEK_END)
            os.pwrite(file.fileno(), text.encode().ljust(length, b"\n"), 0)


def _ip(arguments: str) -> None:
    _run("ip", *arguments.split())


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
