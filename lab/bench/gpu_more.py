"""What the time that is left on a GPU shows after `lab.bench.gpu_quick`: the whole system, and other attention.

    python -m lab.bench.gpu_more OUT

The real gateway, scheduler and worker serve a quiet user beside one neighbour at a time, and beside a flood; torch's
SDPA is compared with FlashInfer; requests decode with long contexts; and vLLM's executor is compared where vLLM is
installed. Everything else is as in `lab.bench.gpu_quick`; the folder of `make gpu-pack WORKER=1` has what the services
need.
"""

import sys

from lab.bench.gpu.checks import MORE
from lab.bench.gpu_quick import main

if __name__ == "__main__":
    sys.exit(main("lab.bench.gpu_more", __doc__, MORE, 420.0))
