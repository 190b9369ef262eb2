"""What is wrong with the file of a measured profile is named with its field and value."""

import json
import re
from pathlib import Path

import pytest

from fairlead.errors import InvalidRequest
from simulation.step_time import MeasuredProfile

GOOD = {"step": 0.01, "sequence": 0.0, "weights": 0.0, "token": 1e-4, "context": 0.0, "pair": 0.0}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "the profile: [] is no object"),
        ({"kv_tokens": 5}, "coefficients: None is no object"),
        ({"coefficients": [0.1], "kv_tokens": 5}, "coefficients: [0.1] is no object"),
        ({"coefficients": {**GOOD, "step": "0.01"}, "kv_tokens": 5}, "step: '0.01' is not a number"),
        ({"coefficients": {**GOOD, "token": -1e-4}, "kv_tokens": 5}, "token: -0.0001 is below 0"),
        ({"coefficients": {**GOOD, "tiles": 3}, "kv_tokens": 5}, "tiles: 3 is no list"),
        ({"coefficients": {**GOOD, "tiles": [True]}, "kv_tokens": 5}, "tiles: True is not a number"),
        ({"coefficients": {"step": 0.01, "stride": 1}, "kv_tokens": 5}, "missing fields ['sequence'"),
        ({"coefficients": {"step": 0.01, "stride": 1}, "kv_tokens": 5}, "unknown fields ['stride']"),
        ({"coefficients": GOOD}, "kv_tokens: None is not a whole number"),
        ({"coefficients": GOOD, "kv_tokens": 0}, "kv_tokens: 0 is not from 1 to"),
    ],
)
def test_mistakes_of_a_profile_are_named(tmp_path: Path, document: object, said: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidRequest, match=re.escape(said)) as found:
        MeasuredProfile.read(path)
    assert str(path) in str(found.value)


def test_a_profile_of_no_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes('"\u00fc"'.encode("latin-1"))
    with pytest.raises(InvalidRequest, match=r"profile\.json: .*can't decode"):
        MeasuredProfile.read(path)
