"""Every variable FAIRLEAD_... that code, manifests or documents name is one that some part of Fairlead reads."""

import re

from endpoint_picker.config import PickerConfig
from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving import config
from serving.environment import PREFIX, READ_ELSEWHERE, SHARED, ServiceName, variable
from tests.repo.test_text import ROOT, text_files
from throttler.config import ThrottlerConfig

NAME = re.compile(r"FAIRLEAD_[A-Z_]*[A-Z]\b")
CONFIGS = {
    ServiceName.GATEWAY: GatewayConfig,
    ServiceName.SCHEDULER: SchedulerConfig,
    ServiceName.PICKER: PickerConfig,
    ServiceName.WORKER: WorkerConfig,
    ServiceName.ADAPTER: AdapterConfig,
    ServiceName.THROTTLER: ThrottlerConfig,
}
INJECTED = {"FAIRLEAD_GATEWAY_PORT"}  # by Kubernetes, as the manifests' comments say
WITH_NAMES_OF_THE_PAST = {ROOT / "CHANGELOG.md", ROOT / "tests"}


def options(service: ServiceName) -> set[str]:
    return {field.name for field in config.options(CONFIGS[service])}


def known() -> set[str]:
    own = {variable(service, option) for service in ServiceName for option in options(service) | {"config"}}
    return own | READ_ELSEWHERE | {PREFIX + option.upper() for option in SHARED}


def test_no_file_names_a_variable_that_nobody_reads() -> None:
    files = [file for file in text_files() if not WITH_NAMES_OF_THE_PAST & {file, *file.parents}]
    named = {name: file for file in files for name in NAME.findall(file.read_text())}
    assert {name: str(file) for name, file in named.items() if name not in known() | INJECTED} == {}
    assert {"FAIRLEAD_SECRET", "FAIRLEAD_WORKER_POLICY"} <= named.keys(), "the search finds"


def test_a_plain_name_is_of_an_option_that_several_services_have() -> None:
    having = {option: [service for service in ServiceName if option in options(service)] for option in SHARED}
    assert {option: services for option, services in having.items() if len(services) < 2} == {}


def test_the_operators_guide_lists_the_plain_names() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    assert [option for option in SHARED if f"`{PREFIX}{option.upper()}`" not in text] == []
