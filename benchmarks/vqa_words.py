"""What the words alone give away: the best answer to each question's words, learned from training's questions.

No pictures and no network: for every type and the things that it names, the answer that would have scored best over
the questions of training that name the same. This is the firmest opponent of vqa-ppo that is blind.

    python -m benchmarks.vqa_words --seeds 1 2 --questions 600 --out benchmarks/vqa-ppo
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from lookact.envs.rooms.questions import named_labels
from lookact.envs.rooms.vsi import Question
from lookact.recipes.ppo.config import PRESETS
from lookact.tasks.spatial_vqa import SpatialVQATask
from lookact.text.answers import score_answer
from lookact.training.vsi_scoring import vsi_report

Words = tuple[str, ...]
TUNING = 10


def questions(task: SpatialVQATask, seed: int, split: str, count: int) -> Iterator[Question]:
    env = task.make_env().env
    for spec in task.specs(seed, split, groups=count):
        yield env._find_task(spec.options["scene_seed"], spec.options["start_seed"]).question


def words_of(question: Question) -> Words:
    """The type and the things it names; the choices of what is closest in one order."""
    *choices, target = named_labels(question) or [""]
    if question.question_type == "object_rel_distance":
        return (question.question_type, *sorted(choices), target)
    return (question.question_type, *choices, target)


def told(question: Question) -> str:
    """The right answer, as words where it is a letter."""
    if question.options is None:
        return question.ground_truth
    return next(option[3:] for option in question.options if option[0] == question.ground_truth)


def best_answer(kind: str, known: Sequence[str]) -> str:
    """Of the known answers the one that scores best over all of them."""

    def score(guess: str) -> float:
        if kind.startswith("object_rel"):
            return float(known.count(guess))
        return sum(score_answer(kind, guess, truth) for truth in known)

    return max(sorted(set(known)), key=score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="whose test questions are answered"
    )
    parser.add_argument("--questions", type=int, default=240, help="test questions of each seed")
    parser.add_argument("--known", type=int, default=3000, help="questions of training to learn from")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    small = PRESETS["small"]
    task = SpatialVQATask(small.env)
    known: dict[Words, list[str]] = defaultdict(list)
    for question in questions(task, TUNING, "demo", arguments.known):
        for words in (words_of(question), (question.question_type,)):
            known[words].append(told(question))
    learned = {words: best_answer(words[0], answers) for words, answers in known.items()}
    reports = {}
    for seed in arguments.seeds:
        rows = []
        for question in questions(task, seed, "test", arguments.questions):
            answer = learned.get(words_of(question), learned[question.question_type,])
            letters = {option[3:]: option[0] for option in question.options or ()}
            said = letters.get(answer, "A") if letters else answer
            row = {name: getattr(question, name) for name in ("id", "dataset", "question_type", "ground_truth")}
            score = score_answer(question.question_type, said, question.ground_truth)
            rows.append({**row, "prediction": said, "score": score, "turns": 0})
        reports[seed] = vsi_report(rows)
    (arguments.out / "words-alone.json").write_text(json.dumps(reports, indent=2) + "\n")


if __name__ == "__main__":
    main()
