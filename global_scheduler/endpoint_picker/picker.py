"""The endpoint pool with a clock: places the requests of all streams."""

import itertools
import time
from collections.abc import Collection

from global_scheduler.core.endpoint_pool import POOL, EndpointPool, Pick
from global_scheduler.core.policies import RouteRequest
from global_scheduler.endpoint_picker.refused import no_endpoint
from global_scheduler.endpoint_picker.request_body import Prompt


class Picker:
    """Places requests in `pool`; the only part of the process that reads a clock.

    Tokens of an answer are not seen. An answer whose length is announced counts four bytes for a token, and a streamed
    one `output_rate` tokens for each second that it lasts; none counts more than its request allowed.
    """

    def __init__(self, pool: EndpointPool, output_rate: float) -> None:
        self.pool = pool
        self._output_rate = output_rate
        self._numbers = itertools.count(1)

    def set_endpoints(self, addresses: Collection[str]) -> None:
        """Make `addresses` the endpoints of the pool."""
        self.pool.set_endpoints(addresses, time.monotonic())

    async def place(self, client: str, weight: int, prompt: Prompt, subset: Collection[str] | None) -> Pick:
        """Choose an endpoint, of `subset` if that is given; raises Refused if there is none."""
        request = RouteRequest(
            request_id=str(next(self._numbers)),
            attempt=0,
            client=client,
            model=POOL,
            digests=await prompt.digests(),
            prompt_tokens=prompt.tokens,
            weight=weight,
            excluded=() if subset is None else self.pool.others(subset),
        )
        placement = self.pool.place(request, time.monotonic())
        if placement is None:
            raise no_endpoint("no endpoint is ready" if subset is None else "no endpoint of the subset is ready")
        return placement

    def served(self, placement: Pick, address: str) -> float:
        """Record that an answer begins; return the time, in seconds of the clock."""
        now = time.monotonic()
        self.pool.served(placement, address, now)
        return now

    def ended(self, placement: Pick, prompt: Prompt, began: float, announced: int | None) -> None:
        """Record the end of an answer that `began` then, and announced its length in bytes, or nothing."""
        tokens = (time.monotonic() - began) * self._output_rate if announced is None else announced / 4
        most = tokens if prompt.most_output is None else prompt.most_output
        self.pool.ended(placement, round(min(tokens, most)))
