"""The page in a real browser: what is drawn, what the keyboard does, and curves that grow while a run writes."""

import json
import os

import numpy as np
import pytest

from lookact.algorithms.judge_diary import JudgeDiary
from lookact.types import Preference
from lookact.viewer.export import export

COUNT = "document.querySelectorAll({!r}).length"
TEXT = "document.querySelector({!r})?.textContent ?? ''"


@pytest.fixture
def folder(tmp_path, write_run, write_episodes, write_tokenizer):
    """Two seeds of one config, another run, and episodes."""
    for seed in (0, 1):
        lines = [{"step": step, "eval/score": step * 0.1 + seed * 0.2, "time/learn": 2} for step in range(1, 5)]
        report = {"score_rate": 0.75, "ci": {"score_rate": [0.5, 1.0]}}
        result = {"before": {"greedy": report}, "after": {"greedy": report}}
        write_run(tmp_path / f"nav-rloo/small-seed{seed}", lines, seed=seed, config={"lr": 0.1}, result=result)
    write_run(tmp_path / "nav-rloo/other", [{"step": 1, "eval/score": 1}], config={"lr": 0.2}, log="a line <b>\n")
    write_episodes(tmp_path / "episodes")
    write_tokenizer(tmp_path / "episodes/model")
    return tmp_path


@pytest.fixture
def quiet(browser, serve_folder):
    """The browser, which must have had nothing to complain of; it leaves the page before the server ends."""
    browser.complaints.clear()
    yield browser
    browser.ask("Page.navigate", url="about:blank")
    assert browser.complaints == []


def seeds_of(url, more=""):
    return f"{url}/#run=nav-rloo%2Fsmall-seed0&run=nav-rloo%2Fsmall-seed1{more}"


def test_the_list_leads_to_curves_of_all_seeds(quiet, serve_folder, folder):
    quiet.open(serve_folder(folder))
    assert quiet.run(COUNT.format(".runs tbody tr")) == 3
    assert "50%" not in quiet.run(TEXT.format(".runs"))
    quiet.run("[...document.querySelectorAll('.runs .link')].at(-1).click()")
    quiet.wait(COUNT.format(".band") + " === 2")
    assert quiet.run(TEXT.format(".legend")) == "small · 2 seeds"
    assert quiet.run(COUNT.format("[data-key='eval/score'] .line")) == 1
    # the mean of 0.4 and 0.6 at the last step
    assert quiet.run(TEXT.format("[data-key='eval/score'] .values")) == "0.5"
    quiet.run("[...document.querySelectorAll('.toggle input')].at(-1).click()")
    quiet.wait(COUNT.format("[data-key='eval/score'] .line") + " === 2")


def test_pointing_at_a_curve_tells_its_numbers(quiet, serve_folder, folder):
    quiet.open(seeds_of(serve_folder(folder), "&mean=no"))
    quiet.wait(COUNT.format("[data-key='eval/score'] .line") + " === 2")
    box = quiet.run("(({x, y, width, height}) => [x + width * 0.99, y + height / 2])"
                    "(document.querySelector(\"[data-key='eval/score'] svg\").getBoundingClientRect())")  # fmt: skip
    quiet.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] - 8, y=box[1])
    told = quiet.wait(TEXT.format("[data-key='eval/score'] .tip:not([hidden])"))
    assert told == "step 4small-seed00.4small-seed10.6"
    # the other charts follow
    assert quiet.run(COUNT.format("[data-key='time/learn'] .cursor circle")) == 2


def test_controls_search_smooth_and_change_the_axis(quiet, serve_folder, folder):
    quiet.open(seeds_of(serve_folder(folder), "&search=score&axis=time&smooth=0.5&log=yes&mean=no"))
    quiet.wait(COUNT.format(".chart") + " === 1")
    assert quiet.run(COUNT.format(".raw")) == 2
    assert "8 s" in quiet.run(TEXT.format(".chart svg")) or "6 s" in quiet.run(TEXT.format(".chart svg"))
    quiet.run("{const find = document.querySelector('[type=search]'); find.value = 'nothing like it';"
              "find.dispatchEvent(new Event('input'))}")  # fmt: skip
    quiet.wait(TEXT.format(".body") + ".includes('No metric is called')")
    assert "search=nothing" in quiet.run("location.hash")


def test_a_running_run_grows_before_your_eyes(quiet, serve_folder, folder, write_run):
    run = write_run(folder / "nav-rloo/live", [{"step": 1, "eval/score": 0.25}])
    os.utime(run / "metrics.jsonl")
    quiet.open(f"{serve_folder(folder)}/#run=nav-rloo%2Flive")
    assert quiet.wait(TEXT.format(".values")) == "0.25"
    assert quiet.run(TEXT.format(".chip .status")) == "running"
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 2, "eval/score": 0.75}) + "\n" + '{"step": 3, "eval/sc')
    quiet.wait(TEXT.format(".values") + " === '0.75'")


def test_settings_show_differences_and_results_their_intervals(quiet, serve_folder, folder):
    url = serve_folder(folder)
    quiet.open(f"{url}/#run=nav-rloo%2Fsmall-seed1&run=nav-rloo%2Fother&tab=settings")
    rows = quiet.run("[...document.querySelectorAll('.settings tbody tr')].map((row) => row.innerText.split('\\t'))")
    assert rows == [["lr", "0.1", "0.2"], ["seed", "1", "0"]]
    quiet.open(seeds_of(url, "&tab=result"))
    assert quiet.run(TEXT.format(".report tbody tr")) == "scoregreedy75%50–100%75%50–100%"
    assert quiet.run(COUNT.format(".interval")) == 4


def test_text_of_a_log_stays_text(quiet, serve_folder, folder):
    quiet.open(f"{serve_folder(folder)}/#run=nav-rloo%2Fother&tab=log")
    assert quiet.run(TEXT.format(".log")) == "a line <b>"


def watch(browser, address):
    """What the player shows at the start, and after the keys were pressed."""
    browser.open(address)
    browser.wait(COUNT.format(".cameras img") + " === 1")
    browser.wait("document.querySelector('.cameras img').naturalWidth === 6")
    assert browser.run("[...document.querySelectorAll('.token.counts')].map((each) => each.textContent).join('')") == (
        '{"forward_meters": 1.0}'
    )
    assert browser.run(TEXT.format(".said h3")) == "turn 1 of 3"
    for _ in range(2):
        browser.press("ArrowRight")
    assert browser.run(TEXT.format(".said h3")) == "turn 3 of 3terminated"
    assert "0.75" in browser.run(TEXT.format(".said dl"))
    browser.press("ArrowRight")
    assert browser.run(TEXT.format(".said h3")) == "at the end"
    browser.press("ArrowLeft")
    assert browser.run(TEXT.format(".said h3")).startswith("turn 3")
    browser.run("document.querySelector('.play').click()")
    browser.wait(TEXT.format(".said h3") + " === 'at the end'")
    browser.press("ArrowDown")
    browser.wait(TEXT.format(".heading") + ".includes('the world broke')")


def test_an_episode_is_watched_with_the_arrow_keys(quiet, serve_folder, folder):
    watch(quiet, f"{serve_folder(folder)}/#store=episodes&tab=episodes")


def test_an_exported_file_shows_the_same_without_a_server(quiet, folder, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(export(folder, most_bytes=1 << 24)[0])
    watch(quiet, f"file://{page}#store=episodes&tab=episodes")
    quiet.open(seeds_of(f"file://{page}").replace(".html/#", ".html#"))
    quiet.wait(COUNT.format(".band") + " === 2")


def test_the_path_grows_on_the_map_turn_by_turn(quiet, serve_folder, tmp_path, write_walk):
    write_walk(tmp_path / "episodes")
    quiet.open(serve_folder(tmp_path))
    # the only folder of episodes is shown at once
    quiet.wait(COUNT.format(".map image") + " === 1")
    assert quiet.run("document.querySelector('.map svg').getAttribute('viewBox')") == "0 0 60 60"
    walked = "document.querySelector('.map .walked').getAttribute('d')"
    agent = "['cx', 'cy'].map((name) => document.querySelector('.map .agent').getAttribute(name)).join()"
    assert (quiet.run(walked), quiet.run(agent)) == ("M30 30", "30,30")
    quiet.press("ArrowRight")
    assert (quiet.run(walked), quiet.run(agent)) == ("M30 30L40 30", "40,30")
    # a place on the path leads to its turn, here to what was seen at the end
    quiet.run("document.querySelector('.map circle.will').dispatchEvent(new Event('click'))")
    assert quiet.run(TEXT.format(".said h3")) == "at the end"
    assert (quiet.run(walked), quiet.run(agent)) == ("M30 30L40 30L40 20", "40,20")
    assert quiet.run(TEXT.format(".heading .badge")) == "success"


def test_back_while_an_episode_plays_leads_back(quiet, serve_folder, tmp_path, write_steps, write_run):
    write_run(tmp_path / "vla-ppo/a", [{"step": 1, "eval/success_rate": 0.5}])
    write_steps(tmp_path / "vla-ppo/a/episodes/step-000001", steps=50)
    quiet.open(serve_folder(tmp_path))
    quiet.run("document.querySelector('.runs .name').click()")
    quiet.wait("location.hash === '#run=vla-ppo%2Fa'")
    quiet.wait(COUNT.format(".tabs button") + " === 6")
    assert "episodes1" in quiet.run(TEXT.format(".tabs"))
    quiet.run("[...document.querySelectorAll('.tabs button')].find((tab) => /episodes/.test(tab.textContent)).click()")
    quiet.wait(TEXT.format(".said h3") + " === 'step 1 of 50'")
    quiet.run("document.querySelector('.play').click()")
    quiet.wait(TEXT.format(".said h3") + " === 'step 3 of 50'")
    quiet.run("history.back()")
    quiet.wait(COUNT.format(".chart") + " > 0")
    quiet.run("new Promise((done) => setTimeout(done, 400))")
    assert quiet.run("location.hash") == "#run=vla-ppo%2Fa"


def test_a_runs_name_is_a_link_that_a_tab_of_its_own_can_open(quiet, serve_folder, folder):
    url = serve_folder(folder)
    quiet.open(url)
    links = quiet.run("[...document.querySelectorAll('.runs .name, .store')].map((link) => link.href)")
    assert f"{url}/#run=nav-rloo%2Fother" in links
    assert f"{url}/#tab=episodes&store=episodes" in links
    quiet.open(f"{url}/#run=nav-rloo%2Fother")
    quiet.wait(TEXT.format(".chip") + ".startsWith('other')")


def test_long_lists_are_cut_searched_and_sorted(quiet, serve_folder, tmp_path, write_episodes):
    manifest = write_episodes(tmp_path) / "episode_manifest.jsonl"
    one, two = (json.loads(line) for line in manifest.read_text().splitlines())
    lines = [{**one, "episode_id": f"e{number}", "question": f"Find thing {number}."} for number in range(500)]
    manifest.write_text("".join(json.dumps(line) + "\n" for line in [one, *lines, two]))
    quiet.open(serve_folder(tmp_path))
    quiet.wait(COUNT.format(".episode") + " === 200")
    assert quiet.run(TEXT.format(".rest")) == "302 more"
    quiet.run("document.querySelector('.rest').click()")
    assert quiet.run(COUNT.format(".episode")) == 400
    set_to = "{{const box = document.querySelector({!r}); box.value = {!r}; box.dispatchEvent(new Event({!r}))}}"
    quiet.run(set_to.format("aside [type=search]", "thing 49", "input"))
    # five that end in 49, and 490 to 499
    assert quiet.run(COUNT.format(".episode")) == 15
    quiet.run(set_to.format("aside [type=search]", "", "input"))
    quiet.run(set_to.format("[aria-label=order]", "lowest return", "change"))
    assert "error" in quiet.run(TEXT.format(".episode"))
    quiet.run(set_to.format("[aria-label='which episodes']", "error", "change"))
    assert quiet.run(COUNT.format(".episode")) == 1


@pytest.mark.parametrize("recipe", ["nav-rloo", "pref-sac"])
def test_a_run_without_episodes_advises_a_command_for_its_recipe(quiet, serve_folder, tmp_path, write_run, recipe):
    run = write_run(tmp_path / recipe / "a", [{"step": 1, "eval/score": 1}])
    page = f"{serve_folder(tmp_path)}/#run={recipe}%2Fa&tab=episodes"
    quiet.open(page)
    command = f"lookact eval {recipe} --preset debug --dummy --episodes 4"
    assert quiet.wait(TEXT.format(".empty code")) == command
    (run / "checkpoint-3/sac").mkdir(parents=True)
    (run / "checkpoint-3/sac/model.safetensors").touch()
    quiet.open(page)
    command = f"lookact eval {recipe} --checkpoint {run}/checkpoint-3 --episodes 8 --out {run}/eval"
    assert quiet.wait(TEXT.format(".empty code")) == command


def test_an_empty_folder_says_what_to_run(quiet, serve_folder, tmp_path):
    quiet.open(serve_folder(tmp_path))
    assert "lookact train nav-rloo --preset debug" in quiet.run(TEXT.format("main"))


def test_no_page_is_wider_than_its_window(quiet, serve_folder, folder, write_walk):
    url = serve_folder(folder)
    write_walk(folder / "walks")
    pages = (
        "",
        seeds_of(""),
        seeds_of("", "&tab=result"),
        *(f"/#store={s}&tab=episodes" for s in ("episodes", "walks")),
    )
    for page in pages:
        quiet.open(url + page)
        for width in (1200, 600, 390):
            quiet.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            assert quiet.run("document.documentElement.scrollWidth") <= width, page
    quiet.ask("Emulation.clearDeviceMetricsOverride")


def test_a_judges_pairs_stand_side_by_side_and_can_be_narrowed_to_what_was_wrong(quiet, serve_folder, folder):
    run = folder / "nav-rloo/other"
    black, white = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
    told = [Preference(black, white, 1, "the <b>second</b>"), Preference(white, black, 1, "the second")]
    JudgeDiary(run / "judge").extend(0, "to be light", ["which?"], told, np.array([[0.0, 2.0], [1.0, 0.0]]))
    quiet.open(f"{serve_folder(folder)}/#run=nav-rloo%2Fother&tab=judge")
    quiet.wait(COUNT.format(".pair-card") + " === 2")
    # the hardest first: scores 1 apart before scores 2 apart
    assert quiet.run(TEXT.format(".pair-card .outcome")) == "wrong"
    quiet.wait("[...document.querySelectorAll('.pair-card img')].every((each) => each.naturalWidth === 8)")
    quiet.run("(box => { box.value = 'right'; box.dispatchEvent(new Event('change')); })"
              "(document.querySelector(\"[aria-label='which pairs']\"))")  # fmt: skip
    quiet.wait(COUNT.format(".pair-card") + " === 1")
    assert quiet.run(TEXT.format(".pair-card pre")) == "the <b>second</b>"
    quiet.open(f"{serve_folder(folder)}/#run=nav-rloo%2Fsmall-seed0&tab=charts")
    assert "judge" not in quiet.run(TEXT.format(".tabs"))
