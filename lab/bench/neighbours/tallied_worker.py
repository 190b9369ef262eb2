"""A worker process that writes to FILE what the steps of its engine compute, for whom, and how long they take.

    python -m lab.bench.neighbours.tallied_worker --tally FILE [the worker's own options]

An engine that makes tokens up takes the time for its steps that a model on a GPU would need. The time follows from the
tokens of a step, their positions and the context that they read: Llama-3.1-8B on an A100-80G, as the simulator has it.
That engine runs ahead by one step, as on a GPU, and the worker has a GPU's default sizes.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.bench.neighbours.step_tally import TallyWriter
from local_worker.app import make_worker
from local_worker.config import WorkerConfig
from local_worker.core.batch import Batch, Engine, PendingStep, StepResult
from local_worker.engine.fake import FakeEngine
from local_worker.model import ServedModel, load_model
from serving.config import load
from serving.environment import ServiceName
from serving.logs import configure_logging
from serving.process import Serving, run
from simulation.step_time import StepTime, profile

GPU, MODEL = "a100-80g", "llama-3.1-8b"


@dataclass(frozen=True, slots=True)
class TalliedStep:
    """A step that began at `began`, in monotonic seconds, and is in the tally when it is computed."""

    step: PendingStep
    batch: Batch
    began: float
    tally: TallyWriter

    def wait(self) -> StepResult:
        """See PendingStep."""
        result = self.step.wait()
        ended = time.monotonic()
        self.tally.add(self.batch, ended - self.began, ended)
        return result


class TalliedEngine:
    """`engine`, whose steps are in the tally; see Engine."""

    def __init__(self, engine: Engine, tally: TallyWriter) -> None:
        self.ahead = engine.ahead
        self._engine = engine
        self._tally = tally

    def launch(self, batch: Batch) -> PendingStep:
        """See Engine."""
        began = time.monotonic()
        return TalliedStep(self._engine.launch(batch), batch, began, self._tally)

    def check(self) -> None:
        """See Engine."""
        self._engine.check()

    def close(self) -> None:
        """See Engine."""
        self._engine.close()
        self._tally.close()


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step that ends at `due`, in monotonic seconds."""

    result: StepResult
    due: float

    def wait(self) -> StepResult:
        """See PendingStep."""
        time.sleep(max(0.0, self.due - time.monotonic()))
        return self.result


class TimedEngine:
    """`engine`, whose steps take the time of a model; see Engine."""

    ahead = 1

    def __init__(self, engine: Engine, seconds: StepTime, tally: TallyWriter) -> None:
        self._engine = engine
        self._seconds = seconds
        self._tally = tally
        self._due = 0.0

    def launch(self, batch: Batch) -> PendingStep:
        """See Engine. A step begins when the one before has ended."""
        began = max(time.monotonic(), self._due)
        seconds = self._seconds(batch, [1] * len(batch.slices))
        self._due = began + seconds
        self._tally.add(batch, seconds, self._due)
        return TimedStep(self._engine.launch(batch).wait(), self._due)

    def check(self) -> None:
        """See Engine."""
        self._engine.check()

    def close(self) -> None:
        """See Engine."""
        self._engine.close()
        self._tally.close()


def tallied(model: ServedModel, tally: TallyWriter) -> ServedModel:
    """Return `model` over an engine with a tally; a fake one has the time of a GPU, and the default sizes of one."""
    if not isinstance(model.engine, FakeEngine):
        return replace(model, engine=TalliedEngine(model.engine, tally))
    seconds = StepTime(profile(GPU, MODEL).coefficients)
    return replace(model, engine=TimedEngine(model.engine, seconds, tally), device="cuda")


def prepare(argv: Sequence[str]) -> Serving:
    """Load the configuration, and return the function that serves; raise ConfigError."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.neighbours.tallied_worker", description=__doc__)
    parser.add_argument("--tally", type=Path, required=True)
    ours, others = parser.parse_known_args(argv)
    config = load(WorkerConfig, ServiceName.WORKER, others, os.environ, prog=parser.prog)
    configure_logging(config.log_level)
    model = tallied(load_model(config), TallyWriter(ours.tally))

    async def serve(stop: asyncio.Event) -> None:
        await make_worker(config, model).run(stop)

    return serve


if __name__ == "__main__":
    sys.exit(run(prepare, sys.argv[1:]))
