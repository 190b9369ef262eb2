"""The worker's own backend before anything is computed."""

import pytest

from fairlead.errors import InvalidRequest
from local_worker.backend import Backend
from local_worker.config import WorkerConfig
from local_worker.engine_backend import EngineBackend
from local_worker.loop import EngineLoop
from local_worker.model import load_model
from local_worker.prompt_encoder import PromptEncoder
from serving.constraint import Constraint
from tests.unit.local_worker.engine.driving import make_batcher


async def test_an_engine_without_masks_refuses_constraints_by_name() -> None:
    model = load_model(WorkerConfig(secret="s" * 16, engine="fake"))
    prompts = PromptEncoder(model.tokenizer, model.vocab_size, model.block_tokens, "s" * 16, model.revisions, 100)
    loop = EngineLoop(make_batcher(), model.engine, lambda _: None, lambda _: None)
    able: Backend = EngineBackend(prompts, model.tokenizer, model.sandbox, loop)
    unable: Backend = EngineBackend(prompts, model.tokenizer, None, loop)
    await able.check(Constraint("json_object"))
    with pytest.raises(InvalidRequest, match=r"sampling\.regex: is not supported by this worker's engine"):
        await unable.check(Constraint("regex", ("a+",)))
