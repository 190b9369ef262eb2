"""The process that listens at an address which `fairlead up` wants for itself."""

from pathlib import Path

from serving.config import ConfigError, check_listener
from serving.rpc.address import check_free

LISTENING = "0A"  # state of a socket in /proc/net/tcp
PROC = Path("/proc")
SHOWN = 60  # characters of a command line


def check_addresses(addresses: dict[str, str]) -> None:
    """Raise ConfigError with option, address and process when one of `addresses`, by option, is none or in use."""
    for option, address in addresses.items():
        check_listener(address, option)
        try:
            check_free(address)
        except (OSError, ValueError) as error:
            by = listener_of(int(address.rpartition(":")[2]))
            raise ConfigError(f"{option}: cannot listen on {address}: {error}{by and f': {by}'}") from error


def listener_of(port: int) -> str:
    """Return number and command of the process that listens on the TCP port `port`; empty where this user may not see
    it, and on systems without /proc."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in PROC.glob("[0-9]*") if sockets else ():
        try:
            if any(str(link.readlink()) in sockets for link in (folder / "fd").iterdir()):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {folder.name} ({command[:SHOWN]}) listens there"
        except OSError:  # of another user, or it has ended meanwhile
            continue
    return ""


def _inodes(port: int) -> list[str]:
    tables = [table for table in (PROC / "net/tcp", PROC / "net/tcp6") if table.exists()]
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return [row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == LISTENING]
