"""LM Evaluation Harness against a running cluster: tasks in which the model writes, and tasks in which it chooses."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
import yaml

from local_worker.engine.model_files import built_in as built_in_folder
from serving.model_name import BUILT_IN
from tests.services import Stack
from tests.unit.gateway.http.clients import python_with
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import HttpClient

pytestmark = [pytest.mark.clients, pytest.mark.e2e, pytest.mark.slow]  # it imports half of scientific Python

CLIENT = "lm-eval[api]"
PROGRAM = """
import os, sys
url, folder = sys.argv[1:]
os.environ.update(HF_HOME=folder, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
import lm_eval
from lm_eval.tasks import TaskManager

tasks = TaskManager(include_path=folder, include_defaults=False)
where = {"model": "tiny", "max_retries": 1}
text = {**where, "base_url": f"{url}/completions", "tokenizer_backend": None, "num_concurrent": 2}
chat = {**where, "base_url": f"{url}/chat/completions", "num_concurrent": 2}
for task, model, arguments in (("text", "local-completions", text), ("chat", "local-chat-completions", chat)):
    done = lm_eval.simple_evaluate(
        model, arguments, tasks=[task], task_manager=tasks, apply_chat_template=task == "chat", bootstrap_iters=0
    )
    print(task, done["results"][task]["exact_match,none"])
"""
CHOICES = """
import json, os, sys
url, folder, model, packages = sys.argv[1:]
sys.path.append(packages)  # torch and transformers, of which the harness's own environment has none
os.environ.update(HF_HOME=folder, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
import lm_eval
from lm_eval.tasks import TaskManager

tasks = TaskManager(include_path=folder, include_defaults=False)
served = {
    "model": "tiny", "base_url": f"{url}/completions", "tokenizer_backend": "huggingface", "tokenizer": model,
    "num_concurrent": 2, "max_retries": 1, "seed": 1,
}
own = {"pretrained": model, "dtype": "float32", "device": "cpu"}
for name, kind, arguments in (("served", "local-completions", served), ("own", "hf", own)):
    settings = {"tasks": ["choice"], "task_manager": tasks, "batch_size": 2, "bootstrap_iters": 0}
    done = lm_eval.simple_evaluate(kind, arguments, **settings)
    samples = sorted(done["samples"]["choice"], key=lambda sample: sample["doc_id"])
    print(name, json.dumps([[sample["acc"], sample["filtered_resps"]] for sample in samples]))
"""
CHOSEN = [
    ("The capital of France is", [" Paris", " Rome", " a large river"], 0),
    ("Two plus two is", [" five", " four"], 1),
    ("Water is made of hydrogen and", [" gold.", " oxygen.", " bread and butter."], 1),
    ("A tide is caused by the", [" moon", " shoes of a king"], 1),
]
QUESTIONS = ["What is a tide?", "Who was Fourier?", "Why is it fair?"]
GENERATION = {"max_gen_toks": 8, "until": ["\n\n"]}
ASKED = {"model": "tiny", "max_tokens": 8, "temperature": 0, "stop": ["\n\n"], "seed": 1234}


def write_task(folder: Path, name: str, answers: list[str]) -> None:
    """A task whose right answers are `answers`; its data lies beside it."""
    data = folder / f"{name}.json"
    rows = zip(QUESTIONS, answers, strict=True)
    data.write_text("\n".join(json.dumps({"question": question, "answer": answer}) for question, answer in rows))
    task = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": GENERATION,
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))


@pytest.fixture
def built_in(stack: Stack) -> HttpClient:
    """A client of a cluster whose worker computes with the built-in model."""
    settings = {"engine": "transformers:batch-invariant", "model": f"tiny={BUILT_IN}", "kv_tokens": 2048}
    stack.worker("a", **settings, dtype="float32")
    gateway, http = serving(stack, throttle="none")
    gateway.wait_for("ready")
    return http


@pytest.mark.parametrize("cluster", ["http", "built_in"])
def test_it_scores_what_the_model_writes(cluster: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The right answers are those of a plain client, but for one: two of three are right."""
    http: HttpClient = request.getfixturevalue(cluster)
    texts = [http.complete(**ASKED, prompt=question).json["choices"][0]["text"] for question in QUESTIONS]
    chats = [
        http.chat(**ASKED, messages=[{"role": "user", "content": question}]).json["choices"][0]["message"]["content"]
        for question in QUESTIONS
    ]
    write_task(tmp_path, "text", [*texts[:2], "wrong"])
    write_task(tmp_path, "chat", [*chats[:2], "wrong"])
    command = [str(python_with(CLIENT)), "-c", PROGRAM, f"http://127.0.0.1:{http.port}/v1", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scores = dict(line.split() for line in done.stdout.splitlines() if line.startswith(("text ", "chat ")))
    assert {name: round(float(score), 3) for name, score in scores.items()} == {"text": 0.667, "chat": 0.667}


def test_it_chooses_as_with_its_own_engine(built_in: HttpClient, tmp_path: Path) -> None:
    """Each choice has the log-probability, and is the greedy one, as with the harness's backend `hf`."""
    data = tmp_path / "choice.json"
    rows = [{"question": question, "choices": choices, "answer": answer} for question, choices, answer in CHOSEN]
    data.write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": "choice",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    (tmp_path / "choice.yaml").write_text(yaml.safe_dump(task))
    packages = str(Path(torch.__file__).parents[1])
    where = f"http://127.0.0.1:{built_in.port}/v1"
    command = [str(python_with(CLIENT)), "-c", CHOICES, where, str(tmp_path), str(built_in_folder()), packages]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    served, own = (
        json.loads(line.split(" ", 1)[1]) for line in done.stdout.splitlines() if line.startswith(("served ", "own "))
    )
    assert len(served) == len(CHOSEN)
    assert {acc for acc, _ in served} == {0.0, 1.0}, "some answers are the model's, and others are not"
    for (acc, choices), (own_acc, own_choices) in zip(served, own, strict=True):
        assert acc == own_acc
        assert [is_greedy for _, is_greedy in choices] == [is_greedy for _, is_greedy in own_choices]
        assert [total for total, _ in choices] == pytest.approx([total for total, _ in own_choices], abs=1e-3)
