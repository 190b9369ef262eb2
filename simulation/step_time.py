"""How long an engine step takes: a roofline, and what an engine adds to it."""

import json
import math
import random
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path

from fairlead.errors import InvalidRequest
from local_worker.core.batch import Batch
from simulation.hardware import GPUS, MODELS, Gpu, ModelShape
from simulation.json_fields import as_list, as_object, number, whole

TILE = 64  # tokens
MOST_KV_TOKENS = 1 << 40  # nothing has room for more


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Seconds: per step, per sequence in it, to read all weights, per token computed, per token of context read, per
    pair of tokens attended; what a step with prompts adds, the step after one, and the first step of all.

    `tiles`, where known, is what the linear layers take for up to 64 tokens, 128, 192 and so on, in place of weights,
    tokens and pairs: matrix products are computed in whole tiles, and tiles in whole waves over the processors.
    """

    step: float
    sequence: float
    weights: float
    token: float
    context: float
    pair: float
    prefill: float = 0.0
    merge: float = 0.0
    first: float = 0.0
    tiles: tuple[float, ...] = ()
    jitter: float = 0.0  # standard deviation of a step's time, relative to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A model on a GPU under some engine. Efficiencies are shares of the published peaks.

    `step_seconds` is the fixed part of a step, `sequence_seconds` what each sequence in the batch adds to it.
    """

    gpu: Gpu
    model: ModelShape
    compute: float = 0.6
    weights: float = 0.8
    kv: float = 0.6
    step_seconds: float = 0.004
    sequence_seconds: float = 0.00005
    prefill_seconds: float = 0.0  # what a step with prompts adds, and what the step after it does: only engines that
    merge_seconds: float = 0.0  # prefill apart and merge batches have these
    first_seconds: float = 0.0  # a fresh engine's first step takes so much longer: it compiles its kernels
    tile_seconds: tuple[float, ...] = ()  # see Coefficients
    jitter: float = 0.0  # likewise

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit beside the weights when a tenth of the memory is left to activations."""
        return int((0.9 * self.gpu.memory - self.model.weight_bytes) / self.model.kv_bytes)

    @property
    def coefficients(self) -> Coefficients:
        """What the figures and efficiencies come to."""
        gpu, model = self.gpu, self.model
        flops = gpu.flops * self.compute
        return Coefficients(
            step=self.step_seconds,
            sequence=self.sequence_seconds,
            weights=model.weight_bytes / (gpu.bandwidth * self.weights),
            token=2 * model.parameters / flops,
            context=model.kv_bytes / (gpu.bandwidth * self.kv),
            # Scores and their use: two products of `hidden` per layer and pair of tokens, two operations each.
            pair=4 * model.layers * model.hidden / flops,
            prefill=self.prefill_seconds,
            merge=self.merge_seconds,
            first=self.first_seconds,
            tiles=self.tile_seconds,
            jitter=self.jitter,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProfile:
    """A worker whose steps were timed (cli.calibrate); `kv_tokens` is its cache's room."""

    coefficients: Coefficients
    kv_tokens: int

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(path: Path) -> "MeasuredProfile":
        """Raises InvalidRequest, naming field and value, when there is none."""
        try:
            document = as_object(json.loads(path.read_bytes()), "the profile")
            known = Coefficients.__dataclass_fields__
            found = dict(as_object(document.get("coefficients"), "coefficients"))
            missing = [name for name, field in known.items() if field.default is MISSING and name not in found]
            unknown = [name for name in found if name not in known]
            if missing or unknown:
                raise ValueError(f"coefficients: missing are {missing}, unknown are {unknown}")
            tiles = tuple(number(value, "tiles") for value in as_list(found.pop("tiles", []), "tiles"))
            figures = {name: number(value, name) for name, value in found.items()}
            room = whole(document.get("kv_tokens"), "kv_tokens", 1, MOST_KV_TOKENS)
            return MeasuredProfile(coefficients=Coefficients(**figures, tiles=tiles), kv_tokens=room)
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"no profile in {path}: {error}") from None


class StepTime:
    """Seconds per step.

    Linear layers read all weights and compute all tokens; the two overlap imperfectly, and their Euclidean sum is near
    the slower one everywhere but where they meet (large decode batches). Attention reads the cache and adds to it.
    """

    def __init__(self, coefficients: Coefficients) -> None:
        self._of = coefficients
        self._merging = False
        self._first = coefficients.first
        self._random = random.Random(0)

    def __call__(self, batch: Batch, lengths: Sequence[int]) -> float:
        """Seconds for `batch`, whose requests make `lengths` tokens each: more than one only while all decode."""
        tokens = context = pairs = sequences = 0
        prefill = False
        for piece, steps in zip(batch.slices, lengths, strict=True):
            prefill = prefill or piece.start < piece.prompt_tokens
            length = piece.stop - piece.start
            sequences += steps
            tokens += length * steps
            context += piece.stop * steps + steps * (steps - 1) // 2
            if length > 1:
                pairs += length * (piece.start + piece.stop) // 2
        steps = max(lengths)
        of = self._of
        if of.tiles:
            linear = steps * of.tiles[min((tokens - 1) // steps // TILE, len(of.tiles) - 1)]
        else:
            linear = math.hypot(steps * of.weights, tokens * of.token) + pairs * of.pair
        extra = self._first + (of.prefill if prefill else of.merge if self._merging else 0.0)
        self._merging, self._first = prefill, 0.0
        seconds = steps * of.step + extra + sequences * of.sequence + linear + context * of.context
        return seconds * self._random.gauss(1, of.jitter / math.sqrt(steps)) if of.jitter else seconds


def profile(gpu: str, model: str) -> Profile:
    """The general profile of a pair; raises KeyError for an unknown name."""
    return Profile(gpu=GPUS[gpu], model=MODELS[model])
