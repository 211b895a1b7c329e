"""Every command and snippet of the docs runs: page by page, in order, in one folder a page.

A line runs as it stands there, but for its size: `smaller` says what is changed, and nothing else is. What can't run
here stands in PROGRAMS or NOT_HERE with the reason (test_docs.py still reads the commands). A new line of the docs that
is of neither kind fails, and so does an entry that no page has any more.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from lookact.cli import main

ROOT = Path(__file__).parent.parent
DOCS = {str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md")}
# test_first_ten_minutes.py runs that recording's commands
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(DOCS - {"docs/first-ten-minutes.md"})]
BUILDS_ON = {
    "docs/viewer.md": "docs/recipes/nav-rloo.md",
    "docs/server.md": "docs/recipes/pref-sac.md",
    "docs/coming-from.md": "docs/recipes/pref-sac.md",
}
"""Pages that take the runs of another for granted: they begin in a copy of its folder as that page left it."""
TWO_PROCESSES = "README.md"
"""The one page on which `--processes` is kept: each process imports torch for itself."""
FEW = 2
SMALLER = {
    "nav-rloo": "--vision_pretraining.rooms 2 --vision_pretraining.epochs 1 --sft.demonstrations 2 --sft.epochs 1 "
    "--learn.iterations 1 --learn.groups 1 --learn.group_size 2 --env.max_turns 2 --sampling.max_tokens 12 "
    "--evaluation.every 1 --evaluation.episodes 1 --evaluation.final_episodes 2",
    "vqa-ppo": "--vision_pretraining.rooms 2 --vision_pretraining.epochs 1 --sft.demonstrations 2 --sft.epochs 1 "
    "--learn.iterations 2 --learn.episodes 2 --learn.minibatch_size 2 --critic.warmup 1 --env.max_turns 2 "
    "--sampling.max_tokens 12 --evaluation.every 1 --evaluation.episodes 1 --evaluation.final_episodes 2",
    "vla-ppo": "--bc.pretrain_images 4 --bc.pretrain_epochs 1 --bc.demos 1 --bc.epochs 1 --bc.workers 1 "
    "--learn.iterations 1 --learn.critic_warmup 0 --learn.num_envs 2 --learn.rollout_steps 24 --learn.workers 2 "
    "--env.max_steps 24 --evaluation.workers 1 --evaluation.every 1 --evaluation.episodes 1 "
    "--evaluation.final_episodes 1 --evaluation.ood_episodes 0 --evaluation.instruction_episodes 0",
    "pref-sac": "--judge.sft.images 32 --judge.sft.held_out 8 --judge.sft.regression_epochs 1 "
    "--judge.sft.qa_pairs 32 --judge.sft.epochs 1 --env.horizon 20 --feedback.total 12 "
    "--feedback.pairs_per_round 6 --feedback.every 1 --reward_model.epochs 2 --learn.episodes 4 "
    "--learn.random_episodes 1 --learn.unsupervised_episodes 1 --learn.batch_size 16 --learn.reset_gradient_steps 4 "
    "--evaluation.every 1 --evaluation.episodes 1 --evaluation.final_episodes 2",
    "world-duel": "--env.num_envs 2 --env.steps_per_episode 8 --model.width 32 --model.layers 1 "
    "--tokenizer.gradient_steps 2 --tokenizer.batch_size 16 --teacher.episodes 4 --teacher.iterations 1 "
    "--teacher.batch_size 2 --teacher.bptt_length 4 --student.iterations 1 --adversarial.iterations 1 "
    "--adversarial.episodes 2 --adversarial.world_model_updates 1 --adversarial.random_batch_size 2 "
    "--adversarial.explorer_batch_size 2 --evaluation.per_phase 1 --evaluation.episodes 2 --evaluation.horizon 2",
}
OUTSIDE = {"reinforce_cartpole.py": "--iterations 2 --batch_size 2"}
"""The same for recipes from outside, of which there is nothing before their page runs."""

PROGRAMS = {
    "pip": "installs packages; make setup did",
    "tools/vary-tests": "runs all tests once more",
    ".venv/bin/pre-commit": "writes into the repository's own hooks",
    "ssh": "needs another machine",
    "lm_eval": "needs the environment of make test-interop, whose tests run it against the server",
    "hf": "fetches the weights of a large model",
    "sbatch": "needs a cluster; tests/jobs reads the job files",
    "ray": "needs a cluster; tests/jobs reads its file",
    "apptainer": "needs Apptainer; tests/jobs reads its file",
    ".": "needs the environment of make test-maniskill",
    ".venv-maniskill/bin/lookact": "needs the environment of make test-maniskill, whose tests train in SAPIEN",
}
SERVERS = ("serve", "env-server")
POLICY = "needs a trained policy; tests/rollout/policy_server serves one"
GPU, SCANS = "needs a GPU, and fetches the weights of a large model", "needs scans of ARKitScenes"
NOT_HERE = {
    "lookact train nav-rloo --preset full --processes 4 --ray.address auto --ray.workers 12 --ray.gpus 1 "
    "--ray.staleness 1": GPU,
    "lookact serve --model Qwen/Qwen3-VL-8B-Instruct --device cuda --dtype bfloat16 --quantise nf4": GPU,
    "lookact train nav-rloo --preset full --env.scenes data/Training/42445173 data/Training/42445198 --name first": GPU,
    "lookact eval nav-rloo --checkpoint runs/nav-rloo/first/best --env.scenes data/Validation/41069021 --greedy": SCANS,
    "lookact scenes check data/Training": SCANS,
    "HF_HUB_OFFLINE=1 lookact serve --model models/Qwen3-VL-8B-Instruct --device cuda:1 --dtype bfloat16 "
    "--quantise nf4 --port 8001 --verbose": GPU,
    "lookact train pref-sac --preset full --env.task sweep-into-v3 --name sweep-into": GPU,
    "SERVER_PORT=8001 lookact train pref-sac --preset full --env.task sweep-into-v3 --device cuda:0 --name sweep": GPU,
    "lookact plot pairs runs/pref-sac/sweep --show wrong": "needs the run before it",
    "lookact train vla-ppo --env.task maniskill:PushCube-v1 --env.max_steps 50 --learn.rollout_steps 50 --bc.demos "
    "200": "needs ManiSkill",
    "lookact train pref-sac --preset full --judge.client.url https://vlm.example.org/v1 "
    "--judge.client.model qwen3-vl-8b --judge.client.key_variable VLM_KEY": GPU,
    "lookact train vqa-ppo --preset full": GPU,
    "lookact parity Qwen/Qwen3-VL-2B-Instruct --device cuda --out parity.json": GPU,
    "lookact serve-policy runs/vla-ppo/small-seed0": POLICY,
    "lookact serve-policy runs/vla-ppo/small-seed0/best --port 8201 --rename observation/image=head": POLICY,
    "lookact eval vsi-bench --questions test.parquet --videos VSI-Bench --model Qwen/Qwen3-VL-8B-Instruct "
    "--device cuda --dtype bfloat16": GPU,
}
"""Commands that can't run here."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(lookact [^`\n]+)`")
PLACEHOLDER = re.compile(r"[A-Z]{2,}|[…\[\]|<>{}]|\.\.\.")


@dataclass
class Page:
    """A page while it runs."""

    name: str
    folder: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    servers: list[subprocess.Popen[str]] = field(default_factory=list)
    address: str = ""


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of all that runs, in order: lines of shell blocks, sessions, snippets, whole commands in prose."""
    end = 0
    for fence in FENCE.finditer(text):
        yield from prose(text[end : fence.start()])
        end, (language, body) = fence.end(), fence.groups()
        if language in ("sh", "bash"):
            lines = (bare(line) for line in body.replace("\\\n", " ").splitlines())
            yield from (("sh", line) for line in lines if line)
        elif language in ("console", "python"):
            yield language, body
    yield from prose(text[end:])


def prose(text: str) -> Iterator[tuple[str, str]]:
    """Commands in running text that could be typed: not those named alone, nor those with a placeholder."""
    for line in INLINE.findall(text):
        words = line.split()
        if len(words) > 3 and "--help" not in words and not PLACEHOLDER.search(line):
            yield "prose", bare(line)


def bare(line: str) -> str:
    """A line without its comment, its words one space apart."""
    return " ".join(re.split(r"(?:^|\s)#", line)[0].split())


def smaller(words: list[str], page: str) -> list[str]:
    """The same command at debug size: fewer of everything, a free port, mostly one process, and one judge of its own.

    A judge that is taught and served takes a process, so pref-sac's `--preset arm` asks a simulated one.
    """
    if words[0] == "demo" and "--watch" not in words:
        return ["demo", "--preset", "debug", "--processes", "1"]
    words = list(words)
    for option in ("--episodes", "--demos", "--max-questions"):
        if option in words:
            words[words.index(option) + 1] = str(FEW)
    if "--port" in words:
        words[words.index("--port") + 1] = "0"
    if "--processes" in words and page != TWO_PROCESSES:
        at = words.index("--processes")
        del words[at : at + 2]
    if len(words) > 1 and words[1] in SMALLER and "--help" not in words:
        words += SMALLER[words[1]].split() + ["--judge.kind", "oracle"] * ("arm" in words)
        if words[0] == "eval" and not {"--episodes", "--max-questions"} & set(words):
            words += ["--episodes", str(FEW)]
    words += OUTSIDE[words[1]].split() if len(words) > 1 and words[1] in OUTSIDE and "--help" not in words else []
    return [newest(word) if re.search(r"/checkpoint-\d+$", word) else word for word in words]


def program(line: str) -> str:
    """The program that a line of shell starts."""
    return next(word for word in line.split() if not re.match(r"[A-Z_]+=", word))


def size(line: str) -> str:
    """What a line comes to once it is made smaller."""
    return " ".join(smaller(shlex.split(line)[1:], ""))


def newest(checkpoint: str) -> str:
    """A run that was cut short has another last checkpoint than the page names."""
    there = Path(checkpoint).parent.glob("checkpoint-*")
    return str(max(there, key=lambda path: int(path.name.partition("-")[2]), default=checkpoint))


def run_page(name: str, folder: Path) -> None:
    """Run all of a page in a folder of its own."""
    page = Page(name, folder)
    in_blocks = {size(line) for _, line in all_lines("sh")}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # what --open opens
        patch.setenv("BROWSER", "true %s")
        try:
            for kind, text in steps((ROOT / name).read_text(encoding="utf-8")):
                known_elsewhere = kind == "prose" and size(text) in in_blocks
                if known_elsewhere or text in NOT_HERE or (kind == "sh" and program(text) in PROGRAMS):
                    continue
                {"sh": run_line, "prose": run_line, "console": run_session, "python": run_snippet}[kind](page, text)
        finally:
            end(page)


def run_line(page: Page, line: str) -> None:
    """One line of shell, by the program it starts."""
    command, _, file = re.sub(r"http://127.0.0.1:\d+", page.address or r"\g<0>", line).partition(" > ")
    words = shlex.split(command)
    if words[0] == "make":
        made = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True)
        assert made.returncode == 0, f"{page.name}: {line}\n{made.stderr}"
    elif words[0] == "curl":
        here = re.sub(r"http://127.0.0.1:\d+", page.address, line)
        answered = subprocess.run(["bash", "-c", f"{here} --silent --fail"], capture_output=True, text=True)
        assert answered.returncode == 0, f"{page.name}: {line}\n{answered.stderr}"
    elif words[1] in SERVERS or (words[1] == "view" and "--out" not in words):
        start(page, smaller(words[1:], page.name))
    else:
        code, said = lookact(smaller(words[1:], page.name))
        assert code == 0, f"{page.name}: {line}\n{said[-2000:]}"
        if file:
            Path(file).write_text(said, encoding="utf-8")


def run_session(page: Page, text: str) -> None:
    """Commands behind a `$`, each followed by all it says."""
    for part in text.split("$ ")[1:]:
        line, _, expected = part.partition("\n")
        _, said = lookact(shlex.split(line)[1:])
        assert said == expected, f"{page.name}: {line}"


def run_snippet(page: Page, text: str) -> None:
    """Run a snippet; one that begins with the name of a file is saved under it, as its page says."""
    if file := re.match(r"# (\w+\.py)\n", text):
        Path(file[1]).write_text(text, encoding="utf-8")
    text = re.sub(r"runs/\S+/checkpoint-\d+", lambda found: newest(found[0]), text)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, page.name, "exec"), page.names)


def lookact(words: list[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and all it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    return code, said.getvalue()


def start(page: Page, words: list[str]) -> None:
    """Start a server as a user would, and see that it answers; it stays for the rest of the page."""
    port = [] if "--port" in words else ["--port", "0"]
    command = [sys.executable, "-m", "lookact", *words, *port]
    log = page.folder / f"server-{len(page.servers)}.log"
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True)
    page.servers.append(server)
    while not (told := re.search(r" on (http://\S+)", log.read_text())):
        assert server.poll() is None, f"{page.name}: {words}\n{log.read_text()}"
        time.sleep(0.05)
    page.address = told.group(1)
    # the line comes a moment before the first connection is taken
    client = httpx.Client(transport=httpx.HTTPTransport(retries=10), timeout=60)
    assert client.get(f"{page.address}/{'health' if words[0] in SERVERS else ''}").status_code == 200
    # for snippets that ask it
    os.environ["SERVER_PORT"] = page.address.rpartition(":")[2]


def end(page: Page) -> None:
    """Interrupt the page's servers, as Ctrl-C does."""
    os.environ.pop("SERVER_PORT", None)
    for server in page.servers:
        server.send_signal(signal.SIGINT)
    assert [server.wait() for server in page.servers] == [0] * len(page.servers)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Runs a page, once, after the one it builds on; gives its folder."""
    folders: dict[str, Path] = {}

    def finish(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp(Path(name).stem)
            if name in BUILDS_ON:
                shutil.copytree(finish(BUILDS_ON[name]), folder, dirs_exist_ok=True)
            run_page(name, folder)
            folders[name] = folder
        return folders[name]

    return finish


def all_lines(*kinds: str) -> list[tuple[str, str]]:
    """Page and text of the steps of these kinds, on all pages."""
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    return [(name, text) for name in PAGES for kind, text in steps(pages[name]) if kind in kinds]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_from_top_to_bottom(name, finished):
    assert finished(name).is_dir()


def test_what_does_not_run_here_is_still_in_the_docs():
    lines = {line for _, line in all_lines("sh", "prose")}
    assert not set(NOT_HERE) - lines
    assert not set(PROGRAMS) - {program(line) for line in lines}


def test_every_line_has_someone_to_run_it():
    lines = [(name, line) for name, line in all_lines("sh") if line not in NOT_HERE]
    strange = [(name, line) for name, line in lines if program(line) not in ("lookact", "make", "curl", *PROGRAMS)]
    assert not strange, "teach this test to run them, or put them into PROGRAMS"


def test_all_that_is_made_smaller_is_a_setting():
    for recipe, words in SMALLER.items():
        assert lookact(["config", recipe, *words.split()])[0] == 0
