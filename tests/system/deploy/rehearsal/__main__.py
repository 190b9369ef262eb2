"""`python -m tests.system.deploy.rehearsal SCENARIO MANIFESTS FOLDER`: rendered forms, played on this machine.

MANIFESTS is a folder with a file for each form. To be run in user, mount, network and process namespaces of its own.
Prints a report as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.system.deploy.rehearsal.cluster import Cluster
from tests.system.deploy.rehearsal.forms import rehearse_forms
from tests.system.deploy.rehearsal.production import rehearse_production
from tests.system.deploy.rehearsal.upgrades import rehearse_upgrades


def main(scenario: str, manifests: Path, folder: Path) -> None:
    """Print the report."""
    forms = {path.stem: list(yaml.load_all(path.read_text(), yaml.CSafeLoader)) for path in manifests.glob("*.yaml")}

    async def rehearse() -> dict[str, Any]:
        play = {"forms": rehearse_forms, "production": rehearse_production, "upgrades": rehearse_upgrades}[scenario]
        return await play(Cluster(folder), forms)

    print(json.dumps(asyncio.run(rehearse())))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
