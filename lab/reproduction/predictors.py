"""Length predictors that need the real length and exist only in simulations."""

import random

from local_worker.core.policies.vtc_predict import VtcOracle
from local_worker.core.request import Request


class VtcHalfRight(VtcOracle):
    """A predictor that is uniform within 50 % of the real length (VTC section B.3, "VTC (+-50 %)")."""

    def _predict(self, request: Request) -> int:
        return int(super()._predict(request) * random.Random(int(request.id)).uniform(0.5, 1.5))
