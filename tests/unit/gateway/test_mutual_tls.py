"""Services that show each other certificates: members work together, nobody else gets in, the secret or not."""

import subprocess
from pathlib import Path

import grpc
import pytest

from cli import __main__ as command
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from serving.config import ConfigError
from serving.rpc.channel import open_sync_channel, secret_metadata
from serving.rpc.mutual_tls import INTERNAL_NAME, load_mutual_tls
from tests.services import SECRET, Process, Stack, eventually


def issue(folder: Path) -> dict[str, str]:
    """A certificate that is its own authority, as services are told of it."""
    folder.mkdir()
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subject = ["-subj", f"/CN={INTERNAL_NAME}", "-addext", f"subjectAltName=DNS:{INTERNAL_NAME}"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *curve, *subject, *files], check=True, capture_output=True)
    return {"internal_tls": f"{certificate},{key},{certificate}"}


def status(scheduler: Process, shown: dict[str, str]) -> scheduler_pb2.StatusResponse:
    """The scheduler's answer to one who shows this certificate, or none, and knows the secret."""
    own = load_mutual_tls(shown.get("internal_tls", ""))
    with open_sync_channel(scheduler.address, own) as channel:
        stub = scheduler_pb2_grpc.AdminStub(channel)
        return stub.Status(scheduler_pb2.StatusRequest(), metadata=secret_metadata(SECRET), timeout=60)


def test_only_members_are_let_in(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    member, stranger = issue(tmp_path / "member"), issue(tmp_path / "stranger")
    scheduler = stack.start("global_scheduler", **member)
    stack.start("local_worker", name="member", engine="fake", scheduler=scheduler.address, **member)
    gateway = stack.start("gateway", scheduler=scheduler.address, **member)
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"), sampling=common_pb2.SamplingParams(max_tokens=3, ignore_eos=True)
    )
    with grpc.insecure_channel(gateway.address) as channel:
        responses = list(inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60))
    assert responses[-1].finished.usage.output_tokens == 3
    assert [found.worker for found in status(scheduler, member).cluster.members] == ["member"]
    for shown in (stranger, {}):
        with pytest.raises(grpc.RpcError) as caught:
            status(scheduler, shown)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    monkeypatch.setenv("FAIRLEAD_INTERNAL_TLS", member["internal_tls"])
    assert command.main(["status", "--scheduler", scheduler.address, "--secret", SECRET]) == 0
    assert "member" in capsys.readouterr().out


def test_all_files_or_none(tmp_path: Path) -> None:
    assert load_mutual_tls("") is None
    with pytest.raises(ConfigError, match="internal_tls: expected CERTIFICATE,KEY,AUTHORITY, got 'a,b'"):
        load_mutual_tls("a,b")
    with pytest.raises(ConfigError, match="internal TLS"):
        load_mutual_tls(",".join([str(tmp_path / "missing")] * 3))
