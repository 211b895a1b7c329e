"""What the docs show is so: links lead somewhere, commands parse, files named exist. test_docs_run.py runs them."""

import json
import re
import shlex
from pathlib import Path

import pytest

from lookact.cli import main, vsi_bench
from lookact.cli.parser import COMMANDS, find_command, refuse_unknown
from lookact.cli.recipes import PRESET, RECIPES, load_settings, name_task, preset_of
from lookact.config import override, settings
from lookact.config.aliases import current_setting, renew_words
from lookact.errors import ConfigError

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*/README.md")])
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(lookact [^`]+)`")


def blocks(text: str, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text) if language in languages]


def links(text: str) -> list[str]:
    """Targets of links and pictures that stay inside the repository."""
    prose = FENCE.sub("", text)
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """Headings as GitHub names them."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def command_lines(text: str) -> list[str]:
    """`lookact …` lines in shell blocks, and those in running text that are whole, without placeholders."""
    shell = "\n".join(blocks(text, "sh", "bash")).replace("\\\n", " ")
    shown = re.findall(r"^(?:[A-Z_]+=\S+ )?(?:\.venv[\w-]*/bin/)?(lookact .*)$", shell, re.MULTILINE)
    # a record's command is for each of several seeds, and may go over the line's end
    inline = [" ".join(line.replace("--seed N", "--seed 0").split()) for line in INLINE.findall(FENCE.sub("", text))]
    return shown + [line for line in inline if not re.search(r"[A-Z]{2,}|[…\[\]|<{}]|\.\.\.", line)]


def parse(line: str, *, old_names: bool = False) -> None:
    """Raise if the command line would be refused."""
    words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]
    if not words or words[0].startswith("-"):
        assert words in ([], ["--help"], ["--version"])
        return
    words = [word for word in words if word != "--debug"]
    # a command named alone speaks of the command
    if words[1:] in ([], ["--help"]) or words in (["plot", "curve"], ["plot", "judge"]):
        find_command(words[0])
        return
    command, parser = find_command(words[0])
    arguments, rest = parser.parse_known_args(words[1:])
    if not getattr(command, "TAKES_SETTINGS", False):
        refuse_unknown(parser, rest)
    elif "http://" in line:
        # settings of a task that a server tells
        return
    elif words[0] == "env-server":
        if ".py:" not in arguments.task:
            command.task_settings(arguments.task, rest)
    elif arguments.recipe == vsi_bench.NAME and words[2:]:
        vsi_bench.make_parser().parse_args(words[2:])
    elif arguments.recipe.endswith(".py") or arguments.recipe.startswith("runs/"):
        # a recipe from outside, or a run: test_docs_run.py knows their settings
        return
    elif arguments.recipe not in (*RECIPES, vsi_bench.NAME):
        raise ConfigError(f"unknown recipe {arguments.recipe}")
    elif rest:
        recipe = load_settings(arguments.recipe)
        words = renew_words(arguments.recipe, rest)
        # a record keeps the names that its run was started with; what is told to users has today's
        assert old_names or words == rest, f"{line} uses an old name: {sorted({*rest} - {*words})}"
        words = name_task(words, [leaf.name for leaf in settings(recipe.Config)])
        override(preset_of(recipe, arguments.recipe, arguments.preset or PRESET), words)


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_links_lead_somewhere(page):
    for link in links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_commands_parse(page):
    for line in command_lines(page.read_text(encoding="utf-8")):
        parse(line, old_names=page.is_relative_to(ROOT / "benchmarks") or page.name == "CHANGELOG.md")


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_in_help_parse(name):
    for example in find_command(name)[0].EXAMPLES:
        parse(example)


@pytest.mark.parametrize(
    "line", ["lookact tran nav-rloo", "lookact eval vqa-pp --dummy", "lookact scenes show --jpg x"]
)
def test_the_check_refuses_a_wrong_command(line):
    with pytest.raises(ConfigError):
        parse(line)


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"^make ([a-z-]+)", "\n".join(blocks(text, "sh")), re.MULTILINE) + re.findall(
        r"`make ([a-z-]+)`", text
    )
    assert set(shown) <= targets


def named_files(heading: str) -> list[str]:
    """The files of the package that the tables under a heading of docs/architecture.md name."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [file for row in rows for file in re.findall(r"`([\w/]+\.py)`", row)]


@pytest.mark.parametrize("heading", ["The way of the data", "Reading a recipe"])
def test_the_tables_of_the_architecture_name_files_that_exist(heading):
    files = named_files(heading)
    assert len(files) > 15
    assert [file for file in files if not (ROOT / "src/lookact" / file).is_file()] == []


def test_a_recipe_is_read_in_at_most_eight_files():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.split("| recipe | read, in this order |")[1].split("\n\n")[0]
    paths = [row.count(".py`") for row in table.splitlines() if ".py`" in row]
    assert len(paths) == 5
    assert max(paths) <= 8


def test_python_blocks_of_the_readme_run(capsys):
    for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python"):
        exec(compile(block, "README.md", "exec"), {})
    assert "tensor([ 1., -1., -1.,  1.])" in capsys.readouterr().out


RECIPE_PAGES = {page.stem: page for page in ROOT.glob("docs/recipes/*.md")}
PREFIXES = "rollout|policy|loss|optim|reward|judge|world|eval|time|seeing"
NAV_SOURCES = ("recipes/rloo/*.py", "algorithms/vision_pretraining.py", "algorithms/sft.py", "training/optim.py")


@pytest.mark.parametrize("recipe", ["nav-rloo", "vla-ppo", "pref-sac", "world-duel"])
def test_every_setting_is_explained_as_its_help_does(recipe):
    text = RECIPE_PAGES[recipe].read_text(encoding="utf-8")
    rows = [f"| `{leaf.name}` | {leaf.type} | {leaf.help} |" for leaf in settings(load_settings(recipe).Config)]
    missing = [row for row in rows if row not in text]
    assert not missing, "rows to put into the page:\n" + "\n".join(missing)
    named = set(re.findall(r"^\| `([\w.]+)` \| [^|]* \| [^|]* \|$", text, re.MULTILINE))
    assert named == {leaf.name for leaf in settings(load_settings(recipe).Config)}, "rows of settings that are gone"


def test_every_metric_that_the_code_names_is_explained():
    text = RECIPE_PAGES["nav-rloo"].read_text(encoding="utf-8")
    files = [file for pattern in NAV_SOURCES for file in (ROOT / "src/lookact").glob(pattern)]
    # those that are put together in a loop are shown by a run, below
    keys = {key for file in files for key in re.findall(rf'"((?:{PREFIXES})/[a-z_]+)"', file.read_text())}
    assert len(keys) > 10
    assert not [key for key in sorted(keys) if f"`{key}`" not in text]


@pytest.mark.slow
def test_every_metric_of_a_run_is_explained(tmp_path, capsys):
    words = "train nav-rloo --preset debug --kl.reference frozen --kl.target 0.1 --learn.iterations 1"
    assert main([*words.split(), "--evaluation.final_episodes", "0", "--out", str(tmp_path), "--name", "n"]) == 0
    run = tmp_path / "nav-rloo/n"
    logs = [run / "metrics.jsonl", *(run / "sft").glob("*.jsonl")]
    assert len(logs) == 3
    keys = {key for log in logs for line in log.read_text().splitlines() for key in json.loads(line)} - {"step"}
    text = RECIPE_PAGES["nav-rloo"].read_text(encoding="utf-8")
    assert not [key for key in sorted(keys) if f"`{key}`" not in text]


def test_every_word_of_the_glossary_says_who_uses_it_so():
    rows = re.findall(r"^\| \*\*(.+?)\*\*.*", (ROOT / "docs/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines() if "| **" in line]
    assert len(rows) == len(lines) == len({row.lower() for row in rows})
    assert all(len(line.strip("|").split("|")) == 3 and line.strip("| ").split("|")[2].strip() for line in lines)
    assert [row.lower() for row in rows] == sorted(row.lower() for row in rows)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "benchmarks" not in page.parts and page.name != "CHANGELOG.md"]
)
def test_settings_are_called_by_todays_names(page):
    live = {leaf.name for recipe in RECIPES for leaf in settings(load_settings(recipe).Config)}
    code = re.findall(r"`-{0,2}([a-z_]+(?:\.[a-z_]+)+)\b[^`]*`", page.read_text(encoding="utf-8"))
    old = {name for name in code for recipe in RECIPES if current_setting(recipe, name) != name}
    assert not old - live
