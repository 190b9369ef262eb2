"""Fairlead beside an engine that already serves: a worker that hands requests to `vllm serve` over HTTP."""
