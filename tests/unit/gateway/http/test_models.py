"""What is served, and whether it is."""

from serving.version import VERSION
from tests.services import Stack
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import HttpClient


def test_models_have_the_fields_that_clients_read(http: HttpClient) -> None:
    listed = http.get("/v1/models")
    assert listed.json["object"] == "list"
    [model] = listed.json["data"]
    assert (model["id"], model["root"], model["object"]) == ("tiny", "tiny", "model")
    assert model["max_model_len"] == 2048
    assert isinstance(model["created"], int)
    assert http.get("/v1/models/tiny").json == model


def test_an_unknown_model(http: HttpClient) -> None:
    answer = http.get("/v1/models/none/such")
    assert answer.status == 404
    assert answer.error["code"] == "model_not_found"
    assert answer.error["message"] == "model: unknown model 'none/such'; models served: tiny"


def test_head_is_get_without_a_body(http: HttpClient) -> None:
    for path in ("/v1/models", "/v1/models/tiny", "/health", "/version", "/v1/models/none"):
        whole, head = http.get(path), http.request("HEAD", path, b"", {})
        assert (head.status, head.body) == (whole.status, b""), path
        assert head.headers["content-length"] == whole.headers["content-length"]


def test_health_and_version_need_no_key(http: HttpClient) -> None:
    assert http.get("/health").status == 200
    assert http.get("/version").json == {"version": VERSION}


def test_unhealthy_without_a_worker(stack: Stack) -> None:
    _, http = serving(stack)
    answer = http.get("/health")
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["retry-after-ms"] == "1000"
    for path in ("/v1/models", "/v1/models/tiny"):
        loading = http.get(path)
        assert (loading.status, loading.error["code"], loading.headers["retry-after"]) == (503, "unavailable", "1")
    refused = http.chat()
    assert refused.status == 503
    assert refused.error["code"] == "unavailable"
