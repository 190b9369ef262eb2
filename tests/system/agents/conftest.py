"""A cluster whose model calls tools, for programs of others."""

from collections.abc import Iterator

import pytest

from tests.system.agents.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers behind a gateway; tests may kill workers and replace them."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stack.close()


@pytest.fixture(scope="module")
def quick_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The same, whose workers compute without a pause; tests leave them alive."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), step_seconds=0.0)
    yield cluster
    cluster.stack.close()
