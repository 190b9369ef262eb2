"""A stand-in for Kubernetes' API server: enough of it for Helm and kubectl to keep objects in it.

It knows no schemas. It refuses what a real one refuses of a StatefulSet, and forgets a number of replicas that the one
who set it does not name any more, as server-side apply does.
"""

import base64
import copy
import http.server
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.system.deploy.forms import Manifest

# What there is, by API group and version, and the plural of each kind in its paths.
KINDS = {
    "v1": {
        "Namespace": "namespaces", "Secret": "secrets", "ConfigMap": "configmaps", "Service": "services",
        "ServiceAccount": "serviceaccounts", "Pod": "pods",
    },
    "apps/v1": {"Deployment": "deployments", "StatefulSet": "statefulsets"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "autoscaling/v2": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"},
    "scheduling.k8s.io/v1": {"PriorityClass": "priorityclasses"},
    "leaderworkerset.x-k8s.io/v1": {"LeaderWorkerSet": "leaderworkersets"},
}  # fmt: skip
CLUSTER_WIDE = ("Namespace", "PriorityClass")
MUTABLE = ("replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy", "minReadySeconds")
BINARY = b"k8s\x00"  # how an object in protobuf begins
VERBS = ["create", "delete", "get", "list", "patch", "update"]
Key = tuple[str, str, str]  # plural, namespace, name


class Refusal(Exception):
    """An answer that is no success: the status, and its reason in Kubernetes' words."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class ApiServer:
    """Objects by plural, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[Key, Manifest] = {}
        self._versions = 0
        self._replicas_named: set[Key] = set()

    def manifests(self) -> list[Manifest]:
        """What Helm made, without its own records."""
        return [
            copy.deepcopy(each)
            for (plural, _, _), each in self.objects.items()
            if plural != "namespaces" and each.get("type") != "helm.sh/release.v1"
        ]

    def named(self, plural: str, name: str, namespace: str = "fairlead") -> Manifest:
        """The object itself."""
        return self.objects[plural, namespace, name]

    def answer(self, verb: str, target: str, body: bytes) -> Any:
        """What the server answers; raises Refusal."""
        url = urlsplit(target)
        if (found := _discovery(url.path)) is not None:
            return found
        api, plural, namespace, name = _parsed(url.path)
        if not name and verb == "GET":
            return self._list(api, plural, namespace, parse_qs(url.query).get("labelSelector", [""])[0])
        if verb == "POST":
            manifest = _decoded(body)
            key = (plural, namespace, manifest["metadata"]["name"])
            if key in self.objects:
                raise Refusal(409, "AlreadyExists", f'{plural} "{key[2]}" already exists')
            return self._keep(key, manifest)
        key = (plural, namespace, name)
        if verb == "PATCH" and b"fieldManager=" in url.query.encode():
            return self._apply(key, yaml.safe_load(body))
        if key not in self.objects:
            raise Refusal(404, "NotFound", f'{plural} "{name}" not found')
        match verb:
            case "GET":
                return self.objects[key]
            case "PUT":
                return self._keep(key, _decoded(body))
            case "PATCH":
                return self._keep(key, _merged(self.objects[key], json.loads(body)))
            case _:
                assert verb == "DELETE"
                return self.objects.pop(key)

    def _list(self, api: str, plural: str, namespace: str, selector: str) -> Manifest:
        wanted = dict(part.split("=") for part in selector.split(",") if part)
        items = [
            each
            for (kind, place, _), each in self.objects.items()
            if kind == plural
            and namespace in ("", place)
            and wanted.items() <= (each["metadata"].get("labels") or {}).items()
        ]
        [kind] = [kind for kind, word in KINDS[api].items() if word == plural]
        return {"kind": f"{kind}List", "apiVersion": api, "metadata": {"resourceVersion": "1"}, "items": items}

    def _apply(self, key: Key, manifest: Manifest) -> Manifest:
        """Server-side apply by the one field manager that there is, beside whoever scales."""
        before = self.objects.get(key)
        if before is not None and key[0] == "statefulsets":
            fixed = [
                {field: value for field, value in each["spec"].items() if field not in MUTABLE}
                for each in (before, manifest)
            ]
            if fixed[0] != fixed[1]:
                raise Refusal(422, "Invalid", f'StatefulSet.apps "{key[2]}" is invalid: spec: Forbidden: updates')
        spec = manifest.get("spec", {})
        if "replicas" in spec:
            self._replicas_named.add(key)
        elif key in self._replicas_named:
            self._replicas_named.discard(key)
        elif before is not None and "replicas" in before.get("spec", {}):
            spec["replicas"] = before["spec"]["replicas"]  # that of whoever scaled it
        if key[0] in ("statefulsets", "deployments"):
            spec.setdefault("replicas", 1)
        if before is not None and "status" in before:
            manifest["status"] = before["status"]
        return self._keep(key, manifest)

    def _keep(self, key: Key, manifest: Manifest) -> Manifest:
        self._versions += 1
        # The namespace of what has one is that of the path.
        place = {"namespace": key[1]} if key[1] else {}
        manifest["metadata"] |= {"resourceVersion": str(self._versions), "uid": "-".join(key), **place}
        self.objects[key] = manifest
        return manifest


def _decoded(body: bytes) -> Manifest:
    """An object in JSON, or a Secret as Helm's records come, in Kubernetes' binary form."""
    if not body.startswith(BINARY):
        manifest: Manifest = json.loads(body)
        return manifest
    [secret] = _fields(body.removeprefix(BINARY))[2]
    parts = _fields(secret)
    metadata = _fields(parts[1][0])
    labels = [_fields(entry) for entry in metadata[11]]
    data = [_fields(entry) for entry in parts[2]]
    return {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {
            "name": metadata[1][0].decode(),
            "labels": {each[1][0].decode(): each[2][0].decode() for each in labels},
        },
        "data": {each[1][0].decode(): base64.b64encode(each[2][0]).decode() for each in data},
        "type": parts[3][0].decode(),
    }


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a message of protobuf that have a length, by number."""
    found: dict[int, list[bytes]] = defaultdict(list)
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 2:
            size = number()
            found[tag >> 3].append(message[at : at + size])
            at += size
        else:
            number()
    return found


def _merged(base: Any, patch: Any) -> Any:
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = {key: value for key, value in base.items() if patch.get(key, "") is not None}
        return merged | {key: _merged(base.get(key), value) for key, value in patch.items() if value is not None}
    return patch


def _parsed(path: str) -> tuple[str, str, str, str]:
    """API group and version, plural, namespace and name; raises Refusal."""
    parts = path.strip("/").split("/")
    api, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if api not in KINDS or rest[0] not in KINDS[api].values():
        raise Refusal(404, "NotFound", f"there is no {path}")
    return api, rest[0], namespace, rest[1] if len(rest) > 1 else ""


def _discovery(path: str) -> Any:
    """The answers by which clients learn what there is."""
    match path.strip("/"):
        case "version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
        case "api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        case "apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(api) for api in KINDS if api != "v1"]}
        case ("api/v1" | "apis/" | "apis") as found if found == "api/v1":
            return _resources("v1")
        case place if place.startswith("apis/") and place.removeprefix("apis/") in KINDS:
            return _resources(place.removeprefix("apis/"))
    return None


def _group(api: str) -> Any:
    name, version = api.split("/")
    entry = {"groupVersion": api, "version": version}
    return {"name": name, "versions": [entry], "preferredVersion": entry}


def _resources(api: str) -> Any:
    resources = [
        {"name": plural, "kind": kind, "namespaced": kind not in CLUSTER_WIDE, "singularName": "", "verbs": VERBS}
        for kind, plural in KINDS[api].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": api, "resources": resources}


@contextmanager
def served(server: ApiServer, folder: Path) -> Iterator[Path]:
    """Serve it on this machine; yields a kubeconfig that leads to it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                with lock:
                    status, found = 200, server.answer(self.command, self.path, body)
                    data = json.dumps(found).encode()
            except Refusal as refusal:
                status = refusal.status
                failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
                data = json.dumps({**failure, "reason": refusal.reason, "message": str(refusal)}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer

        def log_message(self, *_: object) -> None:
            """Nothing."""

    lock = threading.Lock()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        config = folder / "kubeconfig"
        address = f"http://127.0.0.1:{listening.server_port}"
        config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "it", "cluster": {"server": address}}],
                    "users": [{"name": "it", "user": {}}],
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "fairlead"}}],
                    "current-context": "it",
                }
            )
        )
        yield config
        listening.shutdown()
        thread.join()
