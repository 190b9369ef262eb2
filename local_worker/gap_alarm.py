"""What happens when the live gap exceeds what is proved: it is said once, loudly, with the history to look into it."""

import json
import logging
import tempfile
from pathlib import Path

from local_worker.config import WorkerConfig
from local_worker.core.batcher import Batcher
from serving.cost import MICRO

log = logging.getLogger(__name__)


class GapAlarm:
    """Raised at most once in a worker's life: a proof or its code is wrong, and stays so."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._raised = False

    def check(self, batcher: Batcher) -> None:
        """After a step; writes a file for `python -m local_worker.replay` the first time it has to."""
        bound = batcher.policy.bound_micro
        if self._raised or bound is None or batcher.fairness_gap <= bound:
            return
        self._raised = True
        said: dict[str, object] = {"gap": batcher.fairness_gap / MICRO, "bound": bound / MICRO}
        try:
            said["history"] = str(self._write(batcher))
        except OSError as error:
            said["history"] = f"not written: {error}"
        log.critical("the fairness gap exceeds its bound", extra=said)

    def _write(self, batcher: Batcher) -> Path:
        folder = Path(self._config.history_folder or tempfile.gettempdir())
        record = {
            "policy": self._config.policy,
            "cost": self._config.cost,
            "admission": self._config.admission,
            "bound_micro": batcher.policy.bound_micro,
            "segments": batcher.ledger.history.segments(),
        }
        # Clients' names are in it: for this user's eyes only, under a name that nobody can lay in wait at.
        with tempfile.NamedTemporaryFile(
            "w", prefix="fairlead-history-", suffix=".json", dir=folder, delete=False
        ) as file:
            json.dump(record, file)
        return Path(file.name)
