"""The checks of the worker's own engine on a CUDA device, and what they carry to one: see lab/bench/GPU.md."""
