"""The room that a batcher gives, and on what terms requests enter it."""

from dataclasses import dataclass
from enum import StrEnum


class Admission(StrEnum):
    """For how much of its output a request is given pages when it enters."""

    RESERVE = "reserve"
    OPTIMISTIC = "optimistic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The room a batcher gives. Numbers of requests, but for tokens where the name says so."""

    max_running: int
    token_budget: int  # most tokens computed per step
    max_prompt_tokens: int
    max_waiting: int
    max_waiting_per_client: int
    admission: Admission = Admission.RESERVE
