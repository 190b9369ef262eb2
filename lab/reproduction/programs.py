"""Closed-loop programs: calls whose prompts quote earlier answers (DLPM section 6.1, Figure 6)."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lab.loops import ClosedLoop
from simulation.call import SimulatedCall
from simulation.prompts import PromptSegments, output_run

STEP_TOKENS = 20  # length of the instruction that each step of a program adds


class Author:
    """The creator of a workload's calls."""

    def __init__(self) -> None:
        self.loop = ClosedLoop()
        self.segments = PromptSegments()
        self._shelves: dict[tuple[Program, str], list[list[int]]] = {}
        self._numbers = 0
        self._programs = 0

    def program(self) -> str:
        """Return the name of the next program, whose calls form one interaction."""
        self._programs += 1
        return f"program-{self._programs}"

    def shelf(self, program: "Program", client: str, texts: int, tokens: int) -> list[list[int]]:
        """Return texts of `tokens` tokens each that all programs of this kind and client share."""
        key = program, client
        if key not in self._shelves:
            self._shelves[key] = [self.segments.fresh(tokens) for _ in range(texts)]
        return self._shelves[key]

    def length(self, program: str, node: int, mean: int) -> int:
        """Return the output tokens of call number `node`, uniform within half of the mean, independent of the order of
        calls.

        With equal lengths, whole levels would end in the same step, which no real model does.
        """
        return int(mean * random.Random(f"{program}/{node}").uniform(0.5, 1.5))

    def call(
        self, client: str, program: str, prompt: Sequence[int], output: int, arrival: float, stage: int
    ) -> SimulatedCall:
        """Make one call of a program."""
        self._numbers += 1
        return SimulatedCall(
            number=self._numbers,
            client=client,
            prompt=prompt,
            output_tokens=output,
            arrival=arrival,
            interaction=program,
            stage=stage,
        )


class Program(Protocol):
    """A hashable kind of program that senders start."""

    def __hash__(self) -> int:
        """Return a hash of the parameters."""

    def start(self, author: Author, client: str, rng: random.Random, arrival: float) -> None:
        """Add the first calls of one program, and their followers."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Tree of Thoughts: each answer is continued in `branches` ways, `height` levels deep.

    The first `common_tokens` of the question are equal in all trees of the client.
    """

    branches: int
    question_tokens: int = 100
    output_tokens: int = 256
    height: int = 4
    common_tokens: int = 0

    def start(self, author: Author, client: str, rng: random.Random, arrival: float) -> None:
        """See Program."""
        [common] = author.shelf(self, client, 1, self.common_tokens)
        question = common + author.segments.fresh(self.question_tokens - self.common_tokens)
        steps = [author.segments.fresh(STEP_TOKENS) for _ in range(self.height)]
        program = author.program()
        for node in range(1, self.branches + 1):
            output = author.length(program, node, self.output_tokens)
            call = author.call(client, program, question + steps[0], output, arrival, 0)
            author.loop.start(call, partial(self._grow, author, steps, node))

    def _grow(self, author: Author, steps: list[list[int]], node: int, ended: SimulatedCall) -> Iterator[SimulatedCall]:
        stage = ended.stage + 1
        if stage == self.height or not ended.completed:
            return
        prompt = [*ended.prompt, *output_run(ended.number, 0, ended.output_tokens), *steps[stage]]
        now = ended.arrival + ended.latency
        for child in range(node * self.branches + 1, (node + 1) * self.branches + 1):
            output = author.length(ended.interaction, child, self.output_tokens)
            call = author.call(ended.client, ended.interaction, prompt, output, now, stage)
            yield author.loop.follow(call, partial(self._grow, author, steps, child))


@dataclass(frozen=True, slots=True)
class Judge:
    """Branch, solve, merge: several dimensions of an article are evaluated at once, then the evaluations are merged.

    As in SGLang's `fork`, a first call without an answer (here with one token) puts the article into the cache.
    """

    dimensions: int
    preface_tokens: int = 0
    article_tokens: int = 2700
    output_tokens: int = 256

    def start(self, author: Author, client: str, rng: random.Random, arrival: float) -> None:
        """See Program."""
        article = author.segments.fresh(self.preface_tokens + self.article_tokens)
        call = author.call(client, author.program(), article, 1, arrival, 0)
        author.loop.start(call, partial(self._branch, author, article))

    def _branch(self, author: Author, article: list[int], cached: SimulatedCall) -> Iterator[SimulatedCall]:
        if not cached.completed:
            return
        ended, now = list[SimulatedCall](), cached.arrival + cached.latency
        for dimension in range(self.dimensions):
            prompt = article + author.segments.fresh(STEP_TOKENS)
            output = author.length(cached.interaction, dimension, self.output_tokens)
            call = author.call(cached.client, cached.interaction, prompt, output, now, 1)
            yield author.loop.follow(call, partial(self._merge, author, article, ended))

    def _merge(
        self, author: Author, article: list[int], ended: list[SimulatedCall], call: SimulatedCall
    ) -> list[SimulatedCall]:
        if call.completed:
            ended.append(call)
        if len(ended) < self.dimensions:
            return []
        prompt = list(article)
        for one in ended:
            prompt += output_run(one.number, 0, one.output_tokens)
        return [author.call(call.client, call.interaction, prompt, self.output_tokens, call.arrival + call.latency, 2)]


@dataclass(frozen=True, slots=True)
class Reading:
    """Long-context questions, each about one of the client's documents, drawn at random."""

    documents: int
    document_tokens: int = 21_449
    question_tokens: int = 30
    output_tokens: int = 15

    def start(self, author: Author, client: str, rng: random.Random, arrival: float) -> None:
        """See Program."""
        document = author.shelf(self, client, self.documents, self.document_tokens)[rng.randrange(self.documents)]
        prompt = document + author.segments.fresh(self.question_tokens)
        call = author.call(client, author.program(), prompt, self.output_tokens, arrival, 0)
        author.loop.start(call, lambda _: ())


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation: each turn quotes all earlier ones and arrives on average `think` seconds after the last
    answer."""

    turns: int
    question_tokens: int = 28
    output_tokens: int = 142
    think: float = 5.0

    def start(self, author: Author, client: str, rng: random.Random, arrival: float) -> None:
        """See Program."""
        prompt = author.segments.fresh(self.question_tokens)
        program = author.program()
        output = author.length(program, 0, self.output_tokens)
        call = author.call(client, program, prompt, output, arrival, 0)
        author.loop.start(call, partial(self._go_on, author, random.Random(rng.random())))

    def _go_on(self, author: Author, rng: random.Random, ended: SimulatedCall) -> list[SimulatedCall]:
        stage = ended.stage + 1
        if stage == self.turns or not ended.completed:
            return []
        answer = output_run(ended.number, 0, ended.output_tokens)
        prompt = [*ended.prompt, *answer, *author.segments.fresh(self.question_tokens)]
        now = ended.arrival + ended.latency + rng.expovariate(1 / self.think)
        output = author.length(ended.interaction, stage, self.output_tokens)
        call = author.call(ended.client, ended.interaction, prompt, output, now, stage)
        return [author.loop.follow(call, partial(self._go_on, author, rng))]


@dataclass(frozen=True, slots=True)
class Sender:
    """A client that starts programs at `per_second` from second `start` on.

    Arrivals are Gamma with the given coefficient of variation.
    """

    client: str
    program: Program
    per_second: float
    variation: float = 1.0
    start: float = 0.0
    stop: float = math.inf

    def times(self, rng: random.Random, seconds: float) -> Iterator[float]:
        """Yield the start times of its programs, in seconds."""
        shape = 1 / self.variation**2
        time = self.start + rng.gammavariate(shape, 1 / (shape * self.per_second))
        while time < min(seconds, self.stop):
            yield time
            time += rng.gammavariate(shape, 1 / (shape * self.per_second))


@dataclass(frozen=True, slots=True)
class Programs:
    """A workload of all senders' programs that start within `seconds`."""

    senders: tuple[Sender, ...]
    seconds: float
    seed: int = 1

    def make(self) -> ClosedLoop:
        """See WorkloadSpec."""
        author = Author()
        for number, sender in enumerate(self.senders):
            rng = random.Random(self.seed * 1000 + number)
            for time in sender.times(rng, self.seconds):
                sender.program.start(author, sender.client, rng, time)
        return author.loop
