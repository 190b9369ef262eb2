"""Levels of fairness while services of two versions run: the older one does not know the fields of the newer one."""

from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from cli.frame import frame
from fairlead.token_ids import pack_ids
from fairlead.v1 import scheduler_pb2, worker_pb2
from local_worker.core.accounts.tree import FairnessLevels
from local_worker.prompt_encoder import PromptEncoder
from local_worker.tokenizer import ByteTokenizer
from local_worker.wire import request_from
from serving.cost import WEIGHT_ONE


def older(current: Any, without: tuple[str, ...]) -> Any:
    """Return the message class `current` as it was before it had the fields `without`."""
    pool = DescriptorPool()

    def add(file: FileDescriptor) -> None:
        for dependency in file.dependencies:
            add(dependency)
        described = FileDescriptorProto()
        file.CopyToProto(described)
        for message in described.message_type:
            if message.name == current.DESCRIPTOR.name:
                kept = [field for field in message.field if field.name not in without]
                assert len(kept) == len(message.field) - len(without)
                del message.field[:]
                message.field.extend(kept)
        pool.AddSerializedFile(described.SerializeToString())

    add(current.DESCRIPTOR.file)
    return GetMessageClass(pool.FindMessageTypeByName(current.DESCRIPTOR.full_name))


OlderLoad = older(scheduler_pb2.Load, ("levels",))
OlderSubmit = older(worker_pb2.Submit, ("interaction", "user_weight"))


@pytest.mark.parametrize("text", ["user", "tenant,user", "tenant,user,interaction"])
def test_a_request_of_an_older_gateway_has_an_account_at_each_level(text: str) -> None:
    sent = OlderSubmit(
        request_id="r", attempt=1, client="acme/ann", weight=2.0, in_interaction=True, token_ids=pack_ids([1])
    )
    prompts = PromptEncoder(ByteTokenizer(), 256, 4, "s", {"m": "r"}, 100)
    request = request_from(worker_pb2.Submit.FromString(sent.SerializeToString()), prompts, "gateway", 0, 0.0)
    assert (request.client, request.weight, request.user_weight) == ("acme/ann", 2 * WEIGHT_ONE, WEIGHT_ONE)
    levels = FairnessLevels.parse(text)
    expected = {"tenant": "acme", "user": "acme/ann", "interaction": ""}
    assert levels.path(request.client, request.interaction) == tuple(expected[level] for level in levels.levels)


def test_an_older_worker_reads_what_it_knows_of_a_newer_gateways_request() -> None:
    sent = worker_pb2.Submit(request_id="r", client="acme/ann", weight=2.0, user_weight=0.5, interaction="i")
    read = OlderSubmit.FromString(sent.SerializeToString())
    assert (read.request_id, read.client, read.weight) == ("r", "acme/ann", 2.0)


def status_with(load: scheduler_pb2.Load) -> scheduler_pb2.StatusResponse:
    status, model = (
        scheduler_pb2.StatusResponse(),
        scheduler_pb2.ModelInfo(name="m", kv_tokens=100, admission="reserve"),
    )
    status.cluster.members.add(worker="w", model=model, load=load)
    return status


def shown(load: scheduler_pb2.Load) -> dict[str, str]:
    """Return the worker's cells of `fairlead top` by heading; none of them is empty."""
    heads, row = (text for text, _ in frame(status_with(load), status_with(load), 1.0, 20, 200)[2:4])
    names = heads.replace("QUEUE s", "QUEUE").replace("STEP ms", "STEP").replace("BOUND s", "SECONDS").split()
    return dict(zip(names[-7:], row.split()[-7:], strict=True))


def test_an_older_scheduler_passes_on_the_gaps_of_levels_that_it_does_not_know() -> None:
    load = scheduler_pb2.Load(fairness_gap=50.0, fairness_bound=100.0, service_rate=10.0)
    load.levels.add(level="tenant", gap=50.0)
    load.levels.add(level="user", gap=25.0)
    kept = OlderLoad.FromString(load.SerializeToString())
    assert (kept.fairness_gap, kept.fairness_bound) == (50.0, 100.0)
    cells = shown(scheduler_pb2.Load.FromString(kept.SerializeToString()))
    assert (cells["SECONDS"], cells["GAP/BOUND"]) == ("10", "50.0%")
    assert (cells["TENANTS"], cells["USERS"], cells["INTERACTIONS"]) == ("50.0%", "25.0%", "-")


def test_of_an_older_worker_the_largest_gap_alone_is_shown() -> None:
    load = OlderLoad(fairness_gap=50.0, fairness_bound=100.0, service_rate=10.0)
    cells = shown(scheduler_pb2.Load.FromString(load.SerializeToString()))
    assert (cells["SECONDS"], cells["GAP/BOUND"]) == ("10", "50.0%")
    assert (cells["TENANTS"], cells["USERS"], cells["INTERACTIONS"]) == ("-", "-", "-")
