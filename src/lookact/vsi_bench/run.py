"""Rows asked scene by scene and kept as they are answered, so that a killed run goes on; and the report on them.

A folder holds one model's answers in one way of asking: `parts/` (a file of samples and one of skipped rows for each
shard), and, written anew by every report, `results.json` and `samples_vsibench.jsonl`. Samples have lmms-eval's form.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from lookact.data.jsonl import append_row, drop_torn_line, read_objects
from lookact.envs.rooms.vsi import Question, load_questions
from lookact.errors import ConfigError, DataError, ParseError
from lookact.judges.server.batching import Reply
from lookact.text.actions import ANSWER_KEY, parse_move_or_answer
from lookact.text.answers import NUMERIC_TYPES, Scoring, official_prompt, score_answer
from lookact.training.atomic_io import write_text
from lookact.training.progress import progress
from lookact.training.vsi_scoring import Score, Scores, summarise_scores
from lookact.types import Image
from lookact.vsi_bench.answerers import MAX_TOKENS, Ask
from lookact.vsi_bench.frames import find_scene, sample_frames

Rows = Mapping[int, Question]
"""By their place in the file, which is lmms-eval's `doc_id`."""
Samples = Mapping[int, Mapping[str, Any]]
Fault = tuple[str, str]
"""A reason, to be counted, and what it was in detail."""
PARTS, SKIPPED, IDENTITY = "parts", ".skipped.jsonl", "identity.json"
RESULTS, SAMPLES = "results.json", "samples_vsibench.jsonl"
GENERATION = {"max_new_tokens": MAX_TOKENS, "temperature": 0, "top_p": 1.0, "num_beams": 1, "do_sample": False}


def load_rows(questions: Path, ids: Path | None = None) -> dict[int, Question]:
    """The rows of a parquet or JSONL file, or of them those whose ids a file lists, one a line."""
    rows = dict(enumerate(load_questions(questions, purpose="test")))
    if not rows:
        raise DataError(f"{questions}: has no rows; give the benchmark's parquet, or the same as JSONL")
    if ids is None:
        return rows
    try:
        wanted = {int(word) for word in ids.read_text().split()}
    except (OSError, ValueError) as error:
        raise DataError(f"{ids}: give a file of whole numbers, one a line ({error})") from None
    if unknown := wanted - {question.id for question in rows.values()}:
        raise DataError(f"{ids}: {len(unknown)} ids are not in {questions}, such as {min(unknown)}")
    return {doc_id: question for doc_id, question in rows.items() if question.id in wanted}


def of_shard(rows: Rows, index: int, count: int) -> dict[int, Question]:
    """Every `count`th scene's rows from scene `index` on: a video is decoded by one shard alone."""
    scenes = sorted({_scene(question) for question in rows.values()})[index::count]
    return {doc_id: question for doc_id, question in rows.items() if _scene(question) in set(scenes)}


def claim(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder with the answers of another model or to other rows; one that nothing was answered in is taken."""
    described = json.dumps(identity, sort_keys=True)
    path = folder / IDENTITY
    (folder / PARTS).mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if path.exists() and path.read_text() != described and load_samples(folder):
            raise ConfigError(f"{folder} holds answers to other rows or of another model: give another --out")
        write_text(path, described)


def answer_rows(
    rows: Rows, ask: Ask, folder: Path, *, part: str, videos: Path | None, frames: int, batch: int = 8
) -> None:
    """Ask what `folder` has no answer to; without `videos` the rows are asked blind."""
    kept, skips = folder / PARTS / f"{part}.jsonl", folder / PARTS / f"{part}{SKIPPED}"
    drop_torn_line(kept)
    skips.unlink(missing_ok=True)
    done = load_samples(folder)
    left = sorted((doc_id for doc_id in rows if doc_id not in done), key=lambda doc_id: (_scene(rows[doc_id]), doc_id))

    def skip(doc_id: int, reason: str, detail: str) -> None:
        question = rows[doc_id]
        row = {"doc_id": doc_id, "id": question.id, "dataset": question.dataset, "scene_name": question.scene_name}
        append_row(skips, {**row, "reason": reason, "detail": detail})

    with progress(len(left), "asking") as bar:
        for scene, group in groupby(left, lambda doc_id: _scene(rows[doc_id])):
            hidden, shown = _look(scene, videos, frames)
            askable = []
            for doc_id in group:
                if fault := unaskable(rows[doc_id]) or hidden:
                    skip(doc_id, *fault)
                    bar.advance()
                else:
                    askable.append(doc_id)
            for start in range(0, len(askable), batch):
                prompts = {doc_id: _prompt(rows[doc_id]) for doc_id in askable[start : start + batch]}
                replies = ask([[*shown, prompt] for prompt in prompts.values()])
                for (doc_id, prompt), reply in zip(prompts.items(), replies):
                    if reply.error:
                        skip(doc_id, "the model refused the prompt", reply.error)
                    else:
                        append_row(kept, as_sample(doc_id, rows[doc_id], prompt, reply))
                    bar.advance()


def unaskable(question: Question) -> Fault | None:
    """Why a row can't be asked or scored."""
    try:
        _prompt(question)
        score_answer(question.question_type, "1", question.ground_truth, scoring="official")
    except DataError as error:
        return str(error), question.question
    return None


def _look(scene: tuple[str, str], videos: Path | None, frames: int) -> tuple[Fault | None, list[Image]]:
    """Why a scene can't be shown, or its frames."""
    if videos is None:
        return None, []
    try:
        source = find_scene(videos, *scene)
        if source is None:
            return (f"no video of {scene[0]}", f"{videos / scene[0] / scene[1]}.mp4 is missing"), []
        return None, sample_frames(source, frames)
    except DataError as error:
        return ("the video can't be read", str(error)), []


def as_sample(doc_id: int, question: Question, prompt: str, reply: Reply) -> dict[str, Any]:
    """A row and its reply as lmms-eval logs them; the metric in it is the published one."""
    doc = asdict(question)
    metric = "MRA:.5:.95:.05" if question.question_type in NUMERIC_TYPES else "accuracy"
    score = score_answer(question.question_type, reply.text, question.ground_truth, scoring="official")
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": question.ground_truth,
        "arguments": [[prompt, GENERATION]],
        "resps": [[reply.text]],
        "filtered_resps": [reply.text],
        "doc_hash": hashlib.sha256(json.dumps(doc).encode()).hexdigest(),
        "vsibench_score": {**doc, "prediction": reply.text, metric: score},
    }


def load_samples(folder: Path) -> dict[int, dict[str, Any]]:
    """The answers of all shards, each row's first."""
    parts = [path for path in sorted((folder / PARTS).glob("*.jsonl")) if not path.name.endswith(SKIPPED)]
    found: dict[int, dict[str, Any]] = {}
    for path in parts:
        for sample in _whole_rows(path):
            found.setdefault(sample["doc_id"], sample)
    return found


def make_report(rows: Rows, folder: Path, *, scoring: Scoring) -> dict[str, Any]:
    """Scores of what is answered so far, with what is skipped and what is still to be asked; writes both files."""
    with _locked(folder):
        samples, report = _report(rows, folder, scoring)
        write_text(folder / SAMPLES, "".join(json.dumps(sample) + "\n" for sample in samples.values()))
        write_text(folder / RESULTS, json.dumps(report, indent=2) + "\n")
    return report


def _report(rows: Rows, folder: Path, scoring: Scoring) -> tuple[Samples, dict[str, Any]]:
    samples = {doc_id: sample for doc_id, sample in sorted(load_samples(folder).items()) if doc_id in rows}
    skips = {row["doc_id"]: row for path in sorted((folder / PARTS).glob(f"*{SKIPPED}")) for row in _whole_rows(path)}
    skipped = {doc_id: row for doc_id, row in skips.items() if doc_id in rows and doc_id not in samples}
    if not samples:
        why = "; ".join(f"{row['reason']} ({row['detail']})" for row in list(skipped.values())[:1])
        raise DataError(f"none of {len(rows)} rows was answered: {why or 'no row was asked'}")
    report = {
        **plain(summarise_scores(scores_of(samples, scoring), scoring=scoring)),
        "scoring": scoring,
        "rows": len(rows),
        "answered": len(samples),
        "skipped": dict(Counter(row["reason"] for row in skipped.values())),
        "not_asked_yet": len(rows) - len(samples) - len(skipped),
    }
    return samples, report


def sight_gap(rows: Rows, sighted: Path, blind: Path, *, scoring: Scoring) -> dict[str, Any] | None:
    """Scores with frames minus scores without, over the rows that both answered; None where there are none."""
    with_frames, without = (load_samples(folder) for folder in (sighted, blind))
    both = [doc_id for doc_id in rows if doc_id in with_frames and doc_id in without]
    if not both:
        return None
    first, second = (
        scores_of({doc_id: samples[doc_id] for doc_id in both}, scoring) for samples in (with_frames, without)
    )
    gaps = {kind: [a - b for a, b in zip(scores, second[kind])] for kind, scores in first.items()}
    return plain(summarise_scores(gaps, scoring=scoring))


def scores_of(samples: Samples, scoring: Scoring) -> dict[str, list[float]]:
    """The scores of each type's answers; "exact" also takes the answer out of a reply in JSON."""
    found: dict[str, list[float]] = {}
    for sample in samples.values():
        kind, reply = sample["doc"]["question_type"], sample["filtered_resps"][0]
        said = reply if scoring == "official" else answer_in(reply)
        found.setdefault(kind, []).append(score_answer(kind, said, sample["target"], scoring=scoring))
    return found


def answer_in(reply: str) -> str:
    """The answer in a reply's JSON, as LookAct's own policies give it, else the reply's words; empty if it moves."""
    try:
        return str(parse_move_or_answer(reply).get(ANSWER_KEY, ""))
    except ParseError:
        return reply


def plain(scores: Scores) -> dict[str, Any]:
    """For JSON: means, their 95% intervals under `ci`, counts of questions."""

    def means(group: Mapping[str, Score]) -> dict[str, float]:
        return {name: score.mean for name, score in group.items()}

    def bounds(group: Mapping[str, Score]) -> dict[str, Sequence[float]]:
        return {name: [score.low, score.high] for name, score in group.items()}

    whole = {"overall": scores.overall, "micro": scores.micro}
    return {
        **means(whole),
        "per_task": means(scores.per_task),
        "per_type": means(scores.per_type),
        "ci": {**bounds(whole), "per_task": bounds(scores.per_task), "per_type": bounds(scores.per_type)},
        "questions": {name: score.questions for name, score in scores.per_type.items()},
        "missing": list(scores.missing),
    }


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One shard at a time, so that the last report is of all answers before it."""
    with (folder / PARTS / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prompt(question: Question) -> str:
    return official_prompt(question.question_type, question.question, question.options)


def _scene(question: Question) -> tuple[str, str]:
    return question.dataset, question.scene_name


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    """Another shard may be in the middle of its last line."""
    rows, _ = read_objects(path)
    return [row for row in rows if isinstance(row, dict)]
