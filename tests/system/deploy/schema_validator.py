"""One process that holds manifests against schemas: to start one for each takes far longer than to validate."""

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.system.deploy.forms import Manifest

# It reads a request per line, and answers with what is wrong. A schema of Kubernetes is a million bytes, read once.
PROGRAM = """
import functools, json, sys
import jsonschema, kubernetes_validate
from kubernetes_validate import utils

utils.schema_contents = functools.cache(utils.schema_contents)
for line in sys.stdin:
    manifest, version, schema = json.loads(line)
    try:
        if schema is None:
            kubernetes_validate.validate(manifest, version, strict=True)
        else:
            jsonschema.validate(manifest, schema)
        wrong = ""
    except jsonschema.ValidationError as error:
        wrong = f"{manifest['kind']}: {error.message}"
    except utils.SchemaNotFoundError as error:
        wrong = error.message
    print(json.dumps(wrong), flush=True)
"""


class SchemaValidator:
    """The process, in an environment that has kubernetes-validate."""

    def __init__(self, python: Path) -> None:
        self._process = subprocess.Popen(
            [python, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def problems(self, manifests: Iterable[Manifest], version: str) -> list[str]:
        """Return what the schemas of a version of Kubernetes, such as "1.37", find wrong."""
        return [wrong for manifest in manifests if (wrong := self._ask(manifest, version, None))]

    def accepts(self, manifest: Manifest, schema: Manifest) -> bool:
        """Return whether a JSON schema accepts the manifest."""
        return not self._ask(manifest, None, schema)

    def _ask(self, manifest: Manifest, version: str | None, schema: Manifest | None) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([manifest, version, schema]), file=self._process.stdin, flush=True)
        wrong: str = json.loads(self._process.stdout.readline())
        return wrong
