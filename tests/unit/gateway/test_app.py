"""The gateway's configuration."""

import pytest

from gateway.config import GatewayConfig
from serving.config import ConfigError

SECRET = "sixteen letters!"


@pytest.mark.parametrize("listen", ["0.0.0.0:7000", "[::]:7000", "10.1.2.3:7000", "gateway.example:7000"])
def test_a_public_listener_needs_keys_or_an_explicit_word(listen: str) -> None:
    with pytest.raises(ConfigError, match="no keys are given"):
        GatewayConfig(listen=listen, secret=SECRET)
    assert GatewayConfig(listen=listen, secret=SECRET, keys="keys.yaml").keys
    assert GatewayConfig(listen=listen, secret=SECRET, insecure=True).insecure


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.9.9.9:7000", "[::1]:7000", "localhost:7000"])
def test_this_machine_alone_needs_no_keys(listen: str) -> None:
    assert GatewayConfig(listen=listen, secret=SECRET).is_loopback


def test_limits_are_checked() -> None:
    with pytest.raises(ConfigError, match="at least 16 characters"):
        GatewayConfig(secret="short")
    with pytest.raises(ConfigError, match="throttle: user_per_minute: must be above 0, got 0"):
        GatewayConfig(secret=SECRET, throttle="oit:0")
