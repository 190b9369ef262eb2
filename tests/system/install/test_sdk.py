"""The SDK alone in an environment: what it brings, and that it reaches a stack."""

from pathlib import Path

import pytest

from cli.stack import Stack
from tests.system.install.environment import Environment

pytestmark = pytest.mark.slow

APPLICATION = """
import asyncio, sys
import fairlead

async def main():
    async with fairlead.Client(sys.argv[1], user="ann") as client, client.interaction(app="agent") as interaction:
        stream = interaction.stream("hello", max_tokens=5, ignore_eos=True)
        text = "".join([chunk.text async for chunk in stream])
        assert text == stream.completion.text, text
        try:
            await client.generate("x", temperature=-1.0)
        except fairlead.InvalidRequest as error:
            print(len(stream.completion.token_ids), error.field)

asyncio.run(main())
"""
OTHERS = (
    "serving",
    "throttler",
    "gateway",
    "global_scheduler",
    "local_worker",
    "engine_adapter",
    "endpoint_picker",
    "simulation",
    "cli",
    "lab",
)


def test_it_brings_grpc_and_protobuf_only(sdk: Environment) -> None:
    names = {line.partition("==")[0] for line in sdk.installed()}
    grpc = {"grpcio", "grpcio-status", "googleapis-common-protos", "protobuf", "typing_extensions"}
    assert names == {"fairlead", *grpc}


def test_it_puts_nothing_else_on_the_path(sdk: Environment) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {OTHERS!r} if find_spec(name)])"
    assert sdk.python("-c", code) == "[]\n"
    assert not sdk.program("fairlead").exists()


@pytest.mark.e2e
def test_an_application_that_has_nothing_but_the_sdk_is_served(sdk: Environment, tmp_path: Path) -> None:
    with Stack(workers=1, log_dir=tmp_path, model="fake", engine="fake") as stack:
        assert sdk.python("-c", APPLICATION, stack.gateway) == "5 sampling.temperature\n"


def test_every_module_of_it_can_be_imported(sdk: Environment) -> None:
    code = (
        "import importlib, pkgutil, fairlead\n"
        "names = [module.name for module in pkgutil.walk_packages(fairlead.__path__, 'fairlead.')]\n"
        "print(len([importlib.import_module(name) for name in names]) > 20)"
    )
    assert sdk.python("-W", "error", "-c", code) == "True\n"
