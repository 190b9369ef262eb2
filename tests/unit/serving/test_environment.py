"""Which variables a service reads, leaves to others, passes over and refuses."""

import pytest

from serving.environment import ServiceName, variables

OPTIONS = ("name", "policy", "secret", "config")


def test_an_option_of_one_service_carries_its_name() -> None:
    environ = {
        "FAIRLEAD_GATEWAY_POLICY": "a",
        "FAIRLEAD_SCHEDULER_POLICY": "b",
        "FAIRLEAD_PICKER_POLICY": "e",
        "FAIRLEAD_THROTTLER_POLICY": "f",
        "FAIRLEAD_WORKER_POLICY": "c",
        "FAIRLEAD_ADAPTER_POLICY": "d",
        "PATH": "/bin",
    }
    for service in ServiceName:
        assert variables(service, OPTIONS, environ) == {"policy": f"FAIRLEAD_{service}_POLICY"}


def test_a_shared_option_may_be_plain_and_the_services_own_wins() -> None:
    environ = {"FAIRLEAD_SECRET": "all", "FAIRLEAD_WORKER_SECRET": "own"}
    assert variables(ServiceName.WORKER, OPTIONS, environ) == {"secret": "FAIRLEAD_WORKER_SECRET"}
    assert variables(ServiceName.GATEWAY, OPTIONS, environ) == {"secret": "FAIRLEAD_SECRET"}


def test_variables_of_other_parts_and_shared_options_that_this_service_lacks_are_known() -> None:
    environ = {"FAIRLEAD_API_KEY": "x", "FAIRLEAD_CACHE": "/somewhere", "FAIRLEAD_REDIS": "redis://x"}
    assert variables(ServiceName.WORKER, OPTIONS, environ) == {}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("FAIRLEAD_WORKER_POLCY", "FAIRLEAD_WORKER_POLICY"),
        ("FAIRLEAD_SECERT", "FAIRLEAD_SECRET"),
        ("FAIRLEAD_POLICY", "FAIRLEAD_WORKER_POLICY"),
        ("FAIRLEAD_CONFIG", "FAIRLEAD_WORKER_CONFIG"),
        ("FAIRLEAD_WORKER_PORT", None),
        ("FAIRLEAD_QXZ", None),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(name: str, nearest: str | None) -> None:
    with pytest.raises(ValueError, match=r"^no such variable: ") as caught:
        variables(ServiceName.WORKER, OPTIONS, {name: "7000", "FAIRLEAD_SECRET": "x"})
    named = f"{name} (nearest: {nearest})" if nearest else name
    services = ("GATEWAY", "SCHEDULER", "PICKER", "WORKER", "ADAPTER")
    forms = ", ".join(f"FAIRLEAD_{service}_..." for service in services) + " or FAIRLEAD_THROTTLER_..."
    assert str(caught.value) == f"no such variable: {named}; an option of one service is {forms}"


def test_every_unknown_variable_is_named_at_once() -> None:
    with pytest.raises(ValueError, match=r"FAIRLEAD_NAME \(nearest: FAIRLEAD_WORKER_NAME\), FAIRLEAD_QXZ;"):
        variables(ServiceName.WORKER, OPTIONS, {"FAIRLEAD_QXZ": "", "FAIRLEAD_NAME": ""})


# https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables, and Docker's legacy links.
@pytest.mark.parametrize("name", ["FAIRLEAD", "FAIRLEAD_GATEWAY", "FAIRLEAD_WORKER", "FAIRLEAD_REDIS"])
def test_variables_injected_by_kubernetes_and_docker_are_passed_over(name: str) -> None:
    injected = {
        f"{name}_SERVICE_HOST": "10.0.0.11",
        f"{name}_SERVICE_PORT": "7000",
        f"{name}_SERVICE_PORT_GRPC": "7000",
        f"{name}_PORT": "tcp://10.0.0.11:7000",
        f"{name}_PORT_7000_TCP": "tcp://10.0.0.11:7000",
        f"{name}_PORT_7000_TCP_PROTO": "tcp",
        f"{name}_PORT_7000_TCP_PORT": "7000",
        f"{name}_PORT_7000_TCP_ADDR": "10.0.0.11",
        f"{name}_NAME": "/app/gateway",
        f"{name}_ENV_PYTHONUNBUFFERED": "1",
    }
    for service in ServiceName:
        assert variables(service, OPTIONS, injected) == {}
