"""A model of the time of an engine step: a roofline plus the engine's overheads."""

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
MOST_KV_TOKENS = 1 << 40  # upper limit of kv_tokens in a profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The coefficients of a step's time, in seconds.

    `step` is the fixed part of a step, `sequence` is per sequence in it, `weights` is the time to read all weights,
    `token` is per computed token, `context` per token of context read, `pair` per pair of tokens in attention.
    `prefill` is added to a step with prompts, `merge` to the step after one, `first` to the first step of all.

    `tiles`, if given, replaces weights, tokens and pairs: it holds the seconds of the linear layers for up to 64
    tokens, 128, 192 and so on. Matrix products are computed in whole tiles, and tiles in whole waves over the
    processors.
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

    `step_seconds` is the fixed part of a step; each sequence in the batch adds `sequence_seconds`.
    """

    gpu: Gpu
    model: ModelShape
    compute: float = 0.6
    weights: float = 0.8
    kv: float = 0.6
    step_seconds: float = 0.004
    sequence_seconds: float = 0.00005
    # Only engines that compute prompts in separate steps and then merge batches have the next two.
    prefill_seconds: float = 0.0  # extra time of a step with prompts
    merge_seconds: float = 0.0  # extra time of the step after one with prompts
    first_seconds: float = 0.0  # extra time of an engine's first step, in which it compiles its kernels
    tile_seconds: tuple[float, ...] = ()  # see Coefficients
    jitter: float = 0.0  # see Coefficients

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV cache that fit beside the weights when a tenth of the memory is reserved for activations."""
        return int((0.9 * self.gpu.memory - self.model.weight_bytes) / self.model.kv_bytes)

    @property
    def coefficients(self) -> Coefficients:
        """The coefficients that follow from the published figures and the efficiencies."""
        gpu, model = self.gpu, self.model
        flops = gpu.flops * self.compute
        return Coefficients(
            step=self.step_seconds,
            sequence=self.sequence_seconds,
            weights=model.weight_bytes / (gpu.bandwidth * self.weights),
            token=2 * model.parameters / flops,
            context=model.kv_bytes / (gpu.bandwidth * self.kv),
            # Attention has two products of `hidden` per layer and pair of tokens, with two operations each.
            pair=4 * model.layers * model.hidden / flops,
            prefill=self.prefill_seconds,
            merge=self.merge_seconds,
            first=self.first_seconds,
            tiles=self.tile_seconds,
            jitter=self.jitter,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProfile:
    """The profile of a worker whose steps were timed (cli.calibrate); its cache holds `kv_tokens` tokens."""

    coefficients: Coefficients
    kv_tokens: int

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(path: Path) -> "MeasuredProfile":
        """Read a profile from `path`; raises InvalidRequest, with field and value, when the file is not a profile."""
        try:
            document = as_object(json.loads(path.read_bytes()), "the profile")
            known = Coefficients.__dataclass_fields__
            found = dict(as_object(document.get("coefficients"), "coefficients"))
            missing = [name for name, field in known.items() if field.default is MISSING and name not in found]
            unknown = [name for name in found if name not in known]
            if missing or unknown:
                raise ValueError(f"coefficients: missing fields {missing}, unknown fields {unknown}")
            tiles = tuple(number(value, "tiles") for value in as_list(found.pop("tiles", []), "tiles"))
            figures = {name: number(value, name) for name, value in found.items()}
            room = whole(document.get("kv_tokens"), "kv_tokens", 1, MOST_KV_TOKENS)
            return MeasuredProfile(coefficients=Coefficients(**figures, tiles=tiles), kv_tokens=room)
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"no valid profile in {path}: {error}") from None


class StepTime:
    """A function from a batch to the seconds of its step.

    Linear layers read all weights and compute all tokens. These two overlap imperfectly; the model takes their
    Euclidean sum, which is close to the slower of the two except where both are similar (large decode batches).
    Attention reads the cache and adds to this time.
    """

    def __init__(self, coefficients: Coefficients) -> None:
        self._of = coefficients
        self._merging = False
        self._first = coefficients.first
        self._random = random.Random(0)

    def __call__(self, batch: Batch, lengths: Sequence[int]) -> float:
        """Return the seconds for `batch`, whose requests generate `lengths` tokens each: more than 1 only while all
        decode."""
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
    """Return the general profile of a GPU and a model; raises KeyError for an unknown name."""
    return Profile(gpu=GPUS[gpu], model=MODELS[model])
