"""The benchmark of queue policies drives each of them as the worker does, until the last step."""

from functools import partial

import pytest

from lab.bench.local_policy import ADMITTED, CONFIG, WARM_UP, Setting, measure
from simulation.spec import LOCAL_POLICIES

FEW = [Setting("own", 20, 10), Setting("own", 20, 20), Setting("shared", 20, 10)]


@pytest.mark.parametrize("setting", FEW, ids=str)
@pytest.mark.parametrize("name", LOCAL_POLICIES)
def test_every_step_admits_as_many_requests_as_have_room(name: str, setting: Setting) -> None:
    load = measure(setting, partial(LOCAL_POLICIES[name], CONFIG), WARM_UP)
    assert load.admitted == WARM_UP * ADMITTED
