"""The endpoints of an InferencePool, as an API server of Kubernetes lists and watches it."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from endpoint_picker.app import READY, make_picker, serving
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.kubernetes import object_watch
from endpoint_picker.kubernetes.cluster_api import ClusterApi, cluster_api, in_cluster
from endpoint_picker.kubernetes.inference_pool import InferencePool
from global_scheduler.leadership import SoleLeadership
from serving.config import ConfigError
from tests.unit.endpoint_picker.kubernetes import PODS, POOLS, KubernetesServer, kubernetes, pod, pool


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_watch, "PAUSE_SECONDS", 0.001)


@pytest.fixture
async def api() -> AsyncIterator[KubernetesServer]:
    async with kubernetes() as api:
        yield api


@asynccontextmanager
async def followed(api: ClusterApi) -> AsyncIterator[tuple[InferencePool, asyncio.Queue[list[str]]]]:
    """A pool that is followed within the context, and the lists of endpoints that it tells."""
    source = InferencePool(api, "ml", "engines")
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    following = asyncio.create_task(source.follow(told.put))
    try:
        yield source, told
        assert not following.done()
    finally:
        following.cancel()
        await asyncio.wait([following])


def plain(api: KubernetesServer) -> ClusterApi:
    return ClusterApi(api.address, None, None)


async def two_pods(api: KubernetesServer) -> None:
    await api.put(POOLS, pool([8000], app="vllm"))
    await api.put(PODS, pod("a", "10.0.0.1", app="vllm"))
    await api.put(PODS, pod("b", "10.0.0.2", app="vllm"))


async def test_pods_come_and_go(api: KubernetesServer) -> None:
    """Ready pods of the selector are endpoints; others, and those that are about to go, are none."""
    await two_pods(api)
    await api.put(PODS, pod("other", "10.0.0.9", app="gateway"))
    await api.put(PODS, pod("young", "10.0.0.3", is_ready=False, app="vllm"))
    async with followed(plain(api)) as (_, told):
        assert await told.get() == ["10.0.0.1:8000", "10.0.0.2:8000"]
        await api.watched()
        await api.put(PODS, pod("young", "10.0.0.3", app="vllm"))
        assert await told.get() == ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
        await api.put(PODS, pod("a", "10.0.0.1", is_ready=False, app="vllm"))
        assert await told.get() == ["10.0.0.2:8000", "10.0.0.3:8000"]
        leaving = pod("b", "10.0.0.2", app="vllm")
        leaving["metadata"]["deletionTimestamp"] = "2026-11-01T00:00:00Z"
        await api.put(PODS, leaving)
        assert await told.get() == ["10.0.0.3:8000"]
        await api.delete(PODS, "young")
        assert await told.get() == []
    assert api.calls == {f"{call} {path}": 1 for call in ("list", "watch") for path in (POOLS, PODS)}


async def test_each_target_port_of_a_pod_is_an_endpoint(api: KubernetesServer) -> None:
    await api.put(POOLS, pool([8000, 8001], app="vllm"))
    await api.put(PODS, pod("a", "10.0.0.1", app="vllm"))
    await api.put(PODS, pod("b", "fd00::1", app="vllm"))
    async with followed(plain(api)) as (_, told):
        assert await told.get() == ["10.0.0.1:8000", "10.0.0.1:8001", "[fd00::1]:8000", "[fd00::1]:8001"]
        await api.put(POOLS, pool([9000], app="vllm"))
        assert await told.get() == ["10.0.0.1:9000", "[fd00::1]:9000"]


async def test_another_selector_selects_other_pods(api: KubernetesServer) -> None:
    """Until they are listed the former ones stay: no request finds an empty pool."""
    await two_pods(api)
    await api.put(PODS, pod("c", "10.0.0.3", app="vllm", canary="yes"))
    async with followed(plain(api)) as (_, told):
        assert len(await told.get()) == 3
        await api.put(POOLS, pool([8000], app="vllm", canary="yes"))
        assert await told.get() == ["10.0.0.3:8000"]
        await api.put(POOLS, pool([8000]))
        assert await told.get() == []


async def test_a_pool_that_is_not_there_has_no_endpoints(api: KubernetesServer) -> None:
    async with followed(plain(api)) as (source, told):
        await api.watched(1)
        assert source.endpoints == []
        await two_pods(api)
        assert len(await told.get()) in (1, 2)
        await api.delete(POOLS, "engines")
        while await told.get():
            pass


async def test_changes_that_are_gone_are_listed_again(api: KubernetesServer) -> None:
    await two_pods(api)
    async with followed(plain(api)) as (source, told):
        await told.get()
        await api.watched()
        await api.cut()
        await api.delete(PODS, "a")
        api.forget_changes()
        assert await told.get() == ["10.0.0.2:8000"]
        await api.watched()
        await api.put(PODS, pod("c", "10.0.0.3", app="vllm"))
        assert await told.get() == ["10.0.0.2:8000", "10.0.0.3:8000"]
        assert source.is_current
    assert api.calls[f"list {PODS}"] == 2


async def test_a_cut_connection_goes_on_where_it_was(api: KubernetesServer) -> None:
    """What changed meanwhile is watched from the last version: nothing is listed again, and nothing is lost."""
    await two_pods(api)
    async with followed(plain(api)) as (_, told):
        await told.get()
        for number in range(3):
            await api.watched()
            await api.cut()
            await api.put(PODS, pod(f"c{number}", f"10.0.1.{number}", app="vllm"))
            assert (await told.get())[-1] == f"10.0.1.{number}:8000"
    assert api.calls[f"list {PODS}"] == 1


@pytest.mark.parametrize("refusal", [(403, "pods is forbidden"), (500, "etcd is away"), (410, "too old")])
async def test_refusals_are_tried_again(
    api: KubernetesServer, refusal: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    await two_pods(api)
    api.refusals += [refusal] * 3
    async with followed(plain(api)) as (_, told):
        assert len(await told.get()) == 2
    warnings = [record.__dict__["error"] for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ([] if refusal[0] == 410 else [f"ApiRefused('{refusal[0]}: {refusal[1]}')"])


async def test_endpoints_stay_while_the_api_server_is_away() -> None:
    async with kubernetes() as api:
        await two_pods(api)
        async with followed(plain(api)) as (source, told):
            await told.get()
            await api.watched()
            api.refusals += [(503, "it starts")] * 1000
            await api.cut()
            await api.refused(3)  # one watch was refused twice, and has noticed the first time
            assert not source.is_current
            assert source.endpoints == ["10.0.0.1:8000", "10.0.0.2:8000"]
            api.refusals.clear()
            await api.put(PODS, pod("c", "10.0.0.3", app="vllm"))
            assert len(await told.get()) == 3


@pytest.fixture
def service_account(tmp_path: Path) -> tuple[Path, Path]:
    """The certificate of an API server, which vouches for itself, and its key."""
    certificate, key = tmp_path / "ca.crt", tmp_path / "key"
    subject = ["-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


async def test_a_service_account_is_presented_over_tls_and_its_token_read_again(
    service_account: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = service_account
    (tmp_path / "token").write_text("first\n")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    async with kubernetes(tls) as api:
        await two_pods(api)
        async with followed(in_cluster(api.address, tmp_path)) as (_, told):
            await told.get()
            await api.watched()
            assert set(api.tokens) == {"first"}
            (tmp_path / "token").write_text("second\n")
            await api.cut()
            await api.watched()
            assert set(api.tokens[-2:]) == {"second"}


def test_the_api_is_named_or_the_clusters_own(tmp_path: Path) -> None:
    assert cluster_api("http://127.0.0.1:8001/", {}) == ClusterApi("127.0.0.1:8001", None, None)
    with pytest.raises(ConfigError, match="runs in no pod"):
        cluster_api("", {})
    with pytest.raises(ConfigError, match=r"ca\.crt"):
        cluster_api("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    for url in ("https://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1"):
        with pytest.raises(ConfigError, match="endpoints: "):
            cluster_api(url, {})


async def test_a_picker_is_ready_once_it_knows_the_pools_pods_even_if_there_are_none(api: KubernetesServer) -> None:
    config = PickerConfig(listen="127.0.0.1:0", endpoints="ml/engines")
    picker, source = make_picker(config, ServiceCounters()), InferencePool(plain(api), "ml", "engines")
    async with (
        serving(config, picker, source, SoleLeadership()) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=READY))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await api.put(POOLS, pool([8000], app="vllm"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert picker.pool.endpoints == []
        await api.delete(POOLS, "engines")
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


class Faulty:
    """A source of endpoints with a mistake."""

    is_current = True

    def __init__(self) -> None:
        self.endpoints: list[str] = []
        self.is_known = True

    async def follow(self, changed: object) -> None:
        raise KeyError("a mistake")


async def test_a_mistake_in_what_follows_the_endpoints_ends_the_picker() -> None:
    config = PickerConfig(listen="127.0.0.1:0", endpoints="127.0.0.1:1")
    with pytest.raises(ExceptionGroup) as raised:
        async with serving(config, make_picker(config, ServiceCounters()), Faulty(), SoleLeadership()):
            await asyncio.Event().wait()
    assert raised.group_contains(KeyError, match="a mistake")
