"""What a worker refuses to start with."""

import pytest

from fairlead.config import ConfigError
from local_worker.config import WorkerConfig
from local_worker.model import FAKE_KV_TOKENS, load_model


def test_a_cache_without_room_for_one_block_is_refused() -> None:
    def config(block_tokens: int) -> WorkerConfig:
        return WorkerConfig(secret="s" * 16, engine="fake", block_tokens=block_tokens)

    assert load_model(config(FAKE_KV_TOKENS)).kv_tokens == FAKE_KV_TOKENS
    with pytest.raises(ConfigError, match=r"kv_tokens: must be at least one block \(block_tokens, 10000\), got 8192"):
        load_model(config(10_000))
