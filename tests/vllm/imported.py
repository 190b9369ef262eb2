"""vLLM as a worker with one thread imports it: from then on a fork of this process need not import it."""

import importlib

from local_worker.engine.vllm.environment import prepare

prepare(threads=1)
importlib.import_module("local_worker.engine.vllm.executor")
