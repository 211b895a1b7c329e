"""The runner over videos in the benchmark's layout: the tiny checkpoint here, and one with Qwen's own vocabulary."""

import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import fmean

import pytest

from lookact.cli import main
from lookact.errors import ConfigError, DataError
from lookact.judges.server.batching import Reply
from lookact.text.answers import QUESTION_TYPES, official_prompt, score_answer
from lookact.vsi_bench.answerers import hf_answerer, server_answerer
from lookact.vsi_bench.run import (
    answer_in,
    answer_rows,
    claim,
    load_rows,
    load_samples,
    make_report,
    of_shard,
    scores_of,
    sight_gap,
)
from question_files import save_questions
from vsi_layout import SCENES, bench_rows


def says(*texts):
    """Answers its messages one after the other, and keeps what it was asked."""

    def ask(contents):
        ask.asked += contents
        return [Reply(texts[(len(ask.asked) - len(contents) + place) % len(texts)]) for place in range(len(contents))]

    ask.asked = []
    return ask


def run(rows, ask, folder, *, part="0-of-1", videos=None, frames=4, batch=8):
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    answer_rows(rows, ask, folder, part=part, videos=videos, frames=frames, batch=batch)


def test_all_ten_types_and_three_datasets_are_asked_as_published(vsi_layout, tmp_path):
    rows, ask = load_rows(vsi_layout / "test.parquet"), says("5")
    run(rows, ask, tmp_path, videos=vsi_layout, batch=3)
    assert len(ask.asked) == 30
    assert {len(content) for content in ask.asked} == {5}
    assert sorted(content[-1] for content in ask.asked) == sorted(
        official_prompt(row.question_type, row.question, row.options) for row in bench_rows()
    )
    report = make_report(rows, tmp_path, scoring="official")
    assert (report["rows"], report["answered"], report["skipped"], report["not_asked_yet"]) == (30, 30, {}, 0)
    assert report["missing"] == []
    # "5" is right four times of ten types, that is in four of eight tasks
    assert (report["overall"], report["micro"]) == (0.5, pytest.approx(0.4))
    assert report["questions"] == dict.fromkeys(sorted(QUESTION_TYPES), 3)
    assert json.loads((tmp_path / "results.json").read_text()) == report


def test_samples_have_the_form_of_lmms_eval(vsi_layout, tmp_path):
    rows = load_rows(vsi_layout / "test.parquet")
    run(rows, says("B."), tmp_path, videos=None)
    make_report(rows, tmp_path, scoring="official")
    samples = [json.loads(line) for line in (tmp_path / "samples_vsibench.jsonl").read_text().splitlines()]
    assert [sample["doc_id"] for sample in samples] == list(range(30))
    last = samples[-3]
    assert (last["target"], last["resps"], last["filtered_resps"]) == ("B", [["B."]], ["B."])
    assert last["doc"]["id"] == 127
    (prompt, settings) = last["arguments"][0]
    assert prompt.startswith("These are frames of a video.\nQuestion 27")
    assert settings == {"max_new_tokens": 16, "temperature": 0, "top_p": 1.0, "num_beams": 1, "do_sample": False}
    assert (last["vsibench_score"]["prediction"], last["vsibench_score"]["accuracy"]) == ("B.", 1.0)
    assert samples[0]["vsibench_score"]["MRA:.5:.95:.05"] == 0.0
    assert len(last["doc_hash"]) == 64


def test_no_row_vanishes(vsi_layout, tmp_path):
    few = bench_rows()[:6]
    asked = [
        *few,
        replace(few[0], id=1, scene_name="gone"),
        replace(few[0], id=2, dataset="scannet", scene_name="gone"),
        replace(few[0], id=3, scene_name="torn"),
        replace(few[0], id=4, question_type="smell"),
        replace(few[0], id=5, question_type="route_planning"),
        replace(few[0], id=6, ground_truth="0"),
        replace(few[0], id=7, question="too long"),
    ]
    save_questions(asked, tmp_path / "rows.jsonl")
    for dataset, scene in SCENES:
        (tmp_path / dataset).mkdir()
        (tmp_path / dataset / f"{scene}.mp4").symlink_to(vsi_layout / dataset / f"{scene}.mp4")
    (tmp_path / "arkitscenes/torn.mp4").write_bytes(b"no video")

    def ask(contents):
        return [Reply(error="9000 tokens") if "too long" in content[-1] else Reply("5") for content in contents]

    rows = load_rows(tmp_path / "rows.jsonl")
    run(rows, ask, tmp_path / "out", videos=tmp_path)
    report = make_report(rows, tmp_path / "out", scoring="official")
    assert (report["rows"], report["answered"], report["not_asked_yet"]) == (13, 6, 0)
    assert sum(report["skipped"].values()) == 7
    told = "".join(report["skipped"])
    for reason in ("no video of arkitscenes", "no video of scannet", "can't be read", "unknown question type 'smell'",
                   "route_planning has no options", "number is 0", "refused the prompt"):  # fmt: skip
        assert reason in told
    with pytest.raises(DataError, match=r"none of 1 rows was answered: no video of scannet \(.*gone.mp4 is missing\)"):
        make_report({7: rows[7]}, tmp_path / "out", scoring="official")


def test_shards_share_out_whole_scenes_and_their_answers_are_one_result(vsi_layout, tmp_path):
    rows, whole, shared = load_rows(vsi_layout / "test.parquet"), tmp_path / "whole", tmp_path / "shared"
    run(rows, says("5"), whole)
    shares = [of_shard(rows, index, 4) for index in range(4)]
    assert sorted(doc_id for share in shares for doc_id in share) == list(rows)
    assert [len({(row.dataset, row.scene_name) for row in share.values()}) for share in shares] == [1, 1, 1, 0]
    for index in (2, 0):
        run(shares[index], says("5"), shared, part=f"{index}-of-4")
    assert make_report(rows, shared, scoring="official")["not_asked_yet"] == 10
    # who goes on with other shares asks only what is left
    ask = says("5")
    run(rows, ask, shared)
    assert len(ask.asked) == 10
    assert make_report(rows, shared, scoring="official") == make_report(rows, whole, scoring="official")


def test_shards_may_begin_and_end_at_the_same_time(vsi_layout, tmp_path):
    rows = load_rows(vsi_layout / "test.parquet")

    def one(index):
        claim(tmp_path, {"model": "one"})
        answer_rows(of_shard(rows, index, 3), says("5"), tmp_path, part=f"{index}-of-3", videos=None, frames=4)
        return [make_report(rows, tmp_path, scoring="official")["answered"] for _ in range(20)]

    with ThreadPoolExecutor(3) as pool:
        answered = list(pool.map(one, range(3)))
    assert max(map(max, answered)) == 30
    assert json.loads((tmp_path / "results.json").read_text())["answered"] == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "identity.json", "parts", "results.json", "samples_vsibench.jsonl",
    ]  # fmt: skip


def test_ids_choose_rows_from_the_same_answers(vsi_layout, tmp_path):
    (tmp_path / "ids.txt").write_text("100\n101\n\n129\n")
    chosen = load_rows(vsi_layout / "test.parquet", tmp_path / "ids.txt")
    assert sorted(chosen) == [0, 1, 29]
    run(load_rows(vsi_layout / "test.parquet"), says("5"), tmp_path)
    report = make_report(chosen, tmp_path, scoring="official")
    assert (report["rows"], report["answered"], report["micro"]) == (3, 3, pytest.approx(2 / 3))
    (tmp_path / "ids.txt").write_text("7 100")
    with pytest.raises(DataError, match=r"1 ids are not in .*, such as 7"):
        load_rows(vsi_layout / "test.parquet", tmp_path / "ids.txt")


def test_exact_scoring_takes_answers_out_of_json(vsi_layout, tmp_path):
    assert answer_in('I know. {"answer": "B"}') == "B"
    assert answer_in("C. back") == "C. back"
    assert answer_in('{"rotation_angle_degrees": 90, "forward_meters": 0.0}') == ""
    run(load_rows(vsi_layout / "test.parquet"), says(' {"answer": "5"}'), tmp_path)
    exact, official = (scores_of(load_samples(tmp_path), way)["object_counting"] for way in ("exact", "official"))
    assert (exact, official) == ([1.0] * 3, [0.0] * 3)


def test_the_gap_compares_the_same_rows_with_and_without_frames(vsi_layout, tmp_path):
    rows = load_rows(vsi_layout / "test.parquet")
    counting = {doc_id: row for doc_id, row in rows.items() if row.question_type == "object_counting"}
    run(counting, says("5"), tmp_path / "sighted", videos=vsi_layout)
    assert sight_gap(rows, tmp_path / "sighted", tmp_path / "blind", scoring="official") is None
    run(rows, says("4"), tmp_path / "blind")
    gap = sight_gap(rows, tmp_path / "sighted", tmp_path / "blind", scoring="exact")
    # off by a fifth scores 0.7
    assert (gap["micro"], gap["questions"]) == (pytest.approx(0.3), {"object_counting": 3})
    assert gap["ci"]["micro"] == pytest.approx([0.3, 0.3])


def killed_after(ask, count):
    """The same, ended by SIGKILL when it was asked `count` times."""
    left = [count]

    def asked(contents):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(contents)

    return asked


def drive(folder, layout, tmp_path):
    """A checkpoint blind and sighted, in two shards of which one is killed and goes on; against a run in one go."""
    ask, rows = hf_answerer(str(folder)), load_rows(layout / "test.parquet")
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    run(rows, ask, whole, videos=layout)
    first, second = (of_shard(rows, index, 2) for index in range(2))
    (parted / "parts").mkdir(parents=True)
    dies = {"part": "0-of-2", "videos": layout, "batch": 5}
    child = multiprocessing.get_context("fork").Process(
        target=run, args=(first, killed_after(ask, 2), parted), kwargs=dies
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert len(load_samples(parted)) == 10
    with (parted / "parts/0-of-2.jsonl").open("a") as file:
        file.write('{"doc_id": 27, "do')
    run(first, ask, parted, **dies)
    run(second, ask, parted, part="1-of-2", videos=layout)
    assert make_report(rows, parted, scoring="official") == make_report(rows, whole, scoring="official")
    assert (parted / "samples_vsibench.jsonl").read_text() == (whole / "samples_vsibench.jsonl").read_text()
    samples = load_samples(whole)
    assert len(samples) == 30
    scores = [
        score_answer(s["doc"]["question_type"], s["resps"][0][0], s["target"], scoring="official")
        for s in samples.values()
    ]
    assert make_report(rows, whole, scoring="official")["micro"] == pytest.approx(fmean(scores))
    blind = tmp_path / "blind"
    run(rows, ask, blind)
    assert len(load_samples(blind)) == 30
    assert sight_gap(rows, whole, blind, scoring="official")["questions"] == dict.fromkeys(sorted(QUESTION_TYPES), 3)
    return samples


def test_the_tiny_checkpoint_blind_sighted_sharded_killed_and_resumed(tiny_folder, vsi_layout, tmp_path):
    drive(tiny_folder, vsi_layout, tmp_path)


@pytest.mark.slow
def test_a_tiny_qwen3_vl_with_qwens_vocabulary_the_same(qwen_folder, qwen_tokenizer, vsi_layout, tmp_path):
    samples = drive(qwen_folder, vsi_layout, tmp_path)
    lengths = [len(qwen_tokenizer.encode(sample["resps"][0][0])) for sample in samples.values()]
    assert max(lengths) > 3
    # decoded replies may encode to a token more or less than the sixteen that were sampled
    assert max(lengths) <= 32


@pytest.mark.slow
def test_the_command_and_a_server_give_the_same_answers(tiny_folder, chat, vsi_layout, tmp_path, serve_here, capsys):
    from lookact.rollout.samplers.chat_engine import ChatEngine

    words = ["eval", "vsi-bench", "--questions", str(vsi_layout / "test.parquet"), "--frames", "4"]
    here = [*words, "--model", str(tiny_folder), "--out", str(tmp_path)]
    assert main([*here, "--blind", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gap"] == {}
    assert main([*here, "--videos", str(vsi_layout)]) == 0
    table = capsys.readouterr().out
    for shown in (*QUESTION_TYPES, "mean of tasks", "frames-4 minus blind", "30 of 30 rows answered, 0 not asked yet"):
        assert shown in table
    url = serve_here(ChatEngine(chat))
    run(load_rows(vsi_layout / "test.parquet"), server_answerer(url), tmp_path / "there", videos=vsi_layout)
    assert load_samples(tmp_path / "there") == load_samples(tmp_path / "frames-4")
    # another checkpoint's answers are not mixed in
    assert main([*here[:-3], "another", "--out", str(tmp_path), "--blind"]) == 2
    assert "give another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "m"], "give --videos DIR, or --blind"),
        (["--blind"], "give --model, a folder or a Hub name, or --server URL"),
        (["--blind", "--model", "m", "--shard", "4/4"], "write I/N with I from 0 to N - 1"),
        (["--blind", "--model", "m", "--engine", "tgi"], "invalid choice: 'tgi'"),
        (["--videos", "nowhere", "--model", "m"], "--videos nowhere: is no folder"),
        (
            ["--blind", "--model", "m", "--questions", "gone.parquet"],
            "gone.parquet: cannot be read (FileNotFoundError)",
        ),
        (["--blind", "--model", "m", "--questions", "empty.jsonl"], "empty.jsonl: has no rows"),
        (["--blind", "--model", "m", "--ids", "gone.txt"], "gone.txt: give a file of whole numbers"),
    ],
)
def test_bad_usage_is_told_in_one_line(words, told, vsi_layout, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["eval", "vsi-bench", "--questions", str(vsi_layout / "test.parquet"), *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_another_identity_is_refused_where_there_are_answers(vsi_layout, tmp_path):
    # a run that could not open its model leaves nothing that another would mix with
    claim(tmp_path / "a", {"model": "mistyped"})
    claim(tmp_path / "a", {"model": "one"})
    run(load_rows(vsi_layout / "test.parquet"), says("5"), tmp_path / "a")
    claim(tmp_path / "a", {"model": "one"})
    with pytest.raises(ConfigError, match="holds answers to other rows or of another model"):
        claim(tmp_path / "a", {"model": "two"})
