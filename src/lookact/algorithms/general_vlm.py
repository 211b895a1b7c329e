"""Makes the general tiny VLM: colours, shapes, places, counts and directions on synthetic scenes, then any task.

Its tokenizer holds words instead of one task's sentences, and its position embeddings fit images of several sizes.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from lookact.algorithms.sft import fit
from lookact.algorithms.vision_pretraining import supervised, train_encoder
from lookact.algorithms.vlm import template_of
from lookact.data.demonstrations import demo_episode
from lookact.data.packing import shuffled, to_segments
from lookact.envs.shapes.questions import KINDS, action, conversation
from lookact.envs.shapes.scene import SIZES, draw_scene
from lookact.envs.wrappers.gym_chat import CAMERA
from lookact.models.vlm.general import GeneralSpec
from lookact.models.vlm.loading import load_chat, save_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.tiny import TinySpec, make_tiny
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import derive, numpy_rng
from lookact.training.atomic_io import TEMPORARY, place, sync_tree, write_text
from lookact.training.progress import progress
from lookact.types import Observation

REPORT = "general.json"
CORPUS = 500
BATCH = 32
SPEC = TinySpec(image_size=max(SIZES), piece_length=12)
ACTIONS = ("up", "down", "left", "right", "forward", "back", "stop", "pick", "drop", "open", "toggle", "yes", "no")


def make_general(spec: GeneralSpec, folder: Path, *, questions: int = 50) -> dict[str, float]:
    """Write the checkpoint to `folder`, whole or not at all; returns its accuracy on new scenes, kind by kind."""
    temporary = folder.with_name(TEMPORARY + folder.name)
    shutil.rmtree(temporary, ignore_errors=True)
    chat = load_chat(make_tiny(temporary, corpus=corpus(spec.seed), spec=SPEC, seed=spec.seed))
    learn_to_see(chat, spec)
    learn_to_answer(chat, spec)
    accuracy = measure(chat, derive(spec.seed, "held out"), questions=questions)
    write_text(temporary / REPORT, json.dumps({**asdict(spec), "accuracy": accuracy}, indent=2) + "\n")
    sync_tree(save_chat(chat, temporary))
    place(temporary, folder)
    return accuracy


def corpus(seed: int) -> list[str]:
    """What is asked and replied in some conversations, and words of actions."""
    demos = [conversation(numpy_rng(seed, "corpus", number)) for number in range(CORPUS)]
    told = [text for demo in demos for text in (*(seen.text for seen in demo.observations), *demo.replies)]
    return told + [action(word) for word in ACTIONS] * 20


def learn_to_see(chat: ChatVLM, spec: GeneralSpec) -> None:
    """Vision pretraining on scenes; those of a batch are of one size."""
    images = [draw_scene(numpy_rng(spec.seed, "scene", number)).image for number in range(spec.images)]
    batches = []
    for size in SIZES:
        alike = [number for number, image in enumerate(images) if len(image.rgb) == size]
        for epoch in range(spec.image_epochs):
            batches += [[alike[i] for i in batch] for batch in shuffled(len(alike), BATCH, spec.seed, epoch)]
    order = numpy_rng(spec.seed, "batches").permutation(len(batches))
    head, loss = supervised(chat, images[0])
    train_encoder(
        chat, head, dict(enumerate(images)), loss, batches=[batches[i] for i in order], lr=2 * spec.lr, report=quiet
    )


def learn_to_answer(chat: ChatVLM, spec: GeneralSpec) -> None:
    """SFT on questions about scenes."""
    template, segments = template_of(chat), {}
    for number in progress(range(spec.conversations), "conversations"):
        demo = conversation(numpy_rng(spec.seed, "conversation", number))
        (segments[number],) = to_segments(demo_episode(demo, template, name=str(number)), loss_on="action")
    fit(
        chat,
        segments,
        total=spec.conversations,
        epochs=spec.epochs,
        batch_size=BATCH,
        lr=spec.lr,
        token_budget=8192,
        seed=spec.seed,
        report=quiet,
    )


def measure(chat: ChatVLM, seed: int, *, questions: int) -> dict[str, float]:
    """The share of right replies to `questions` of each kind about new scenes, the likeliest token each time."""
    actor, accuracy = HFSampler(chat, Sampling(max_tokens=16, greedy=True)), {}
    for kind in KINDS:
        observations, right = [], []
        for number in range(questions):
            rng, asked = numpy_rng(seed, kind.__name__, number), None
            while asked is None:
                asked = kind(scene := draw_scene(rng), rng)
            observations.append(Observation(text=asked[0], images={CAMERA: scene.image.rgb}))
            right.append(asked[1])
            actor.begin(number, 0)
        said = actor.act(range(questions), observations)
        accuracy[kind.__name__] = sum(a.action == b for a, b in zip(said, right)) / questions
        for number in range(questions):
            actor.end(number)
    return accuracy


def quiet(metrics: dict[str, float], step: int) -> None:
    """The bars show how it goes."""
