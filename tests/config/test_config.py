from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from lookact.config import (
    check,
    from_mapping,
    load_config,
    override,
    save_config,
    setting,
    settings,
    to_mapping,
    to_yaml,
)
from lookact.config.safe_yaml import load_yaml
from lookact.config.values import unknown_setting as unknown
from lookact.errors import ConfigError


@dataclass(frozen=True)
class Optim:
    lr: float = setting(1e-4, above=0, help="learning rate")
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    betas: tuple[float, float] = setting((0.9, 0.999), least=0, below=1)


@dataclass(frozen=True)
class Guide:
    weight: float = 0.5


@dataclass(frozen=True)
class Config:
    seed: int = 0
    group_size: int = setting(8, least=2, help="episodes that share a baseline")
    whiten: bool = True
    name: str = "tiny # not a comment"
    sizes: tuple[int, ...] = (8, 16)
    limit: int | None = None
    lora: int | Literal["auto"] = "auto"
    scenes: Path | None = setting(None, exists=True)
    optim: Optim = Optim()
    guide: Guide | None = None


@dataclass(frozen=True)
class Needy:
    steps: int


BASE = Config(seed=7, optim=Optim(lr=0.5))


def message(act) -> str:
    with pytest.raises(ConfigError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_mapping_lies_over_its_base_and_the_base_over_the_defaults():
    config = from_mapping(Config, {"optim": {"schedule": "linear"}, "limit": 3}, base=BASE)
    assert config == Config(seed=7, limit=3, optim=Optim(lr=0.5, schedule="linear"))
    assert from_mapping(Config, {}) == Config()


def test_mapping_round_trip_keeps_every_type():
    config = Config(scenes=Path("a/b"), sizes=(), guide=Guide(0.25), lora=4, optim=Optim(lr=1e-5))
    plain = to_mapping(config)
    assert plain["scenes"] == "a/b"
    assert plain["optim"]["betas"] == [0.9, 0.999]
    assert from_mapping(Config, plain) == config


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_file_round_trip(tmp_path, suffix):
    config = Config(name="two\n\nlines: 'yes'", optim=Optim(lr=1e-5), scenes=Path("x"), guide=Guide())
    save_config(config, tmp_path / f"c.{suffix}")
    assert load_config(Config, tmp_path / f"c.{suffix}") == config


@given(name=st.text(st.characters(blacklist_categories=["Cs"])), lr=st.floats(allow_nan=False), seed=st.integers())
def test_yaml_holds_any_value(name, lr, seed):
    config = Config(seed=seed, name=name, optim=Optim(lr=lr), guide=Guide(lr))
    assert from_mapping(Config, yaml.safe_load(to_yaml(config))) == config


def test_yaml_carries_the_help_texts():
    assert "group_size: 8  # episodes that share a baseline\n" in to_yaml(Config())
    assert "  lr: 0.0001  # learning rate\n" in to_yaml(Config())


def test_an_empty_file_changes_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text("# nothing\n")
    assert load_config(Config, tmp_path / "c.yaml", BASE) == BASE


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--optim.lr", "1e-3"], Config(optim=Optim(lr=1e-3))),
        (["--optim.lr=1e-3", "--seed", "-4"], Config(seed=-4, optim=Optim(lr=1e-3))),
        (["--group-size", "1e2"], Config(group_size=100)),
        (["--no-whiten"], Config(whiten=False)),
        (["--no-whiten", "--whiten"], Config()),
        (["--whiten", "off", "--seed", "3"], Config(whiten=False, seed=3)),
        (["--sizes", "1", "2", "3", "--seed", "1"], Config(sizes=(1, 2, 3), seed=1)),
        (["--sizes", "4,5"], Config(sizes=(4, 5))),
        (["--sizes="], Config(sizes=())),
        (["--limit", "3", "--limit", "none"], Config()),
        (["--lora", "16"], Config(lora=16)),
        (["--scenes", "a=b"], Config(scenes=Path("a=b"))),
        (["--name=--odd"], Config(name="--odd")),
        (["--guide.weight", "2"], Config(guide=Guide(2.0))),
        (["--guide.weight", "2", "--guide", "none"], Config()),
        ([], Config()),
    ],
)
def test_override(args, expected):
    assert override(Config(), args) == expected


def test_values_keep_their_types():
    config = override(Config(), ["--optim.lr", "1", "--seed", "2.0", "--sizes", "7"])
    assert [type(value) for value in (config.optim.lr, config.seed, config.sizes)] == [float, int, tuple]


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (["--optim.lrr", "1"], ["unknown setting optim.lrr", "did you mean optim.lr?"]),
        (["--lr", "1"], ["unknown setting lr", "did you mean optim.lr?"]),
        (["--zzzzzz", "1"], ["unknown setting zzzzzz", "group_size", "optim.schedule"]),
        (["--no-seed"], ["unknown setting no_seed"]),
        (["--optim.lr"], ["--optim.lr has no value", "a number"]),
        (["--optim", "adam"], ["optim = 'adam'", "group", "optim.lr"]),
        (
            ["--optim.schedule", "cosin"],
            ["optim.schedule = 'cosin'", "constant, linear, cosine", "did you mean cosine?"],
        ),
        (["--seed", "3.5"], ["seed = '3.5'", "a whole number"]),
        (["--seed", "inf"], ["seed = 'inf'", "a whole number"]),
        (["--seed", "none"], ["seed = 'none'", "a whole number"]),
        (["--optim.lr", "nan"], ["optim.lr = 'nan'", "a number"]),
        (["--whiten", "maybe"], ["whiten = 'maybe'", "true or false"]),
        (["--no-whiten=3"], ["--no-whiten=3", "alone"]),
        (["--sizes", "1", "x"], ["sizes = ['1', 'x']", "whole number"]),
        (["--optim.betas", "0.9"], ["optim.betas = '0.9'", "2 values"]),
        (["seed", "3"], ["unexpected 'seed'", "--name value"]),
        (["--", "3"], ["unexpected '--'"]),
        (["--sizes\n", "3"], ["unknown setting"]),
    ],
)
def test_a_bad_override_is_one_line_with_field_value_and_remedy(args, parts):
    text = message(lambda: override(Config(), args))
    assert all(part in text for part in parts), text


def test_a_word_of_several_groups_means_what_learns_first():
    names = ["seed", "warm_start.lr", "learn.lr", "critic.lr"]
    assert str(unknown("lr", names)) == "unknown setting lr: did you mean learn.lr? Or warm_start.lr, critic.lr?"


def test_many_settings_are_named_by_their_groups():
    names = ["seed", *(f"learn.{letter}" for letter in "abcdefghijklm"), "world.task"]
    assert str(unknown("zzz", names)) == "unknown setting zzz: the settings are seed, learn.*, world.*"


@pytest.mark.parametrize(
    ("mapping", "parts"),
    [
        ({"optim": {"lrr": 1}}, ["unknown setting optim.lrr", "did you mean optim.lr?"]),
        ({1: 2}, ["unknown setting 1"]),
        ({"seed": 3.5}, ["seed = 3.5", "a whole number"]),
        ({"seed": True}, ["seed = True", "a whole number"]),
        ({"whiten": 1}, ["whiten = 1", "true or false"]),
        ({"name": False}, ["name = False", "quotes"]),
        ({"seed": {"a": 1}}, ["seed = {'a': 1}", "a whole number"]),
        ({"optim": None}, ["optim = None", "group"]),
        ({"optim": [1]}, ["optim = [1]", "group"]),
        ({"scenes": 5}, ["scenes = 5", "a path or none"]),
        ({"name": ["x" * 500]}, ["..."]),
    ],
)
def test_a_bad_mapping_is_one_line_with_field_value_and_remedy(mapping, parts):
    text = message(lambda: from_mapping(Config, mapping))
    assert all(part in text for part in parts), text
    assert len(text) < 250


def test_a_missing_setting_is_named():
    assert message(lambda: from_mapping(Needy, {})) == "steps is missing: give it a whole number"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(group_size=1), "group_size = 1: set it to at least 2"),
        (Config(optim=Optim(lr=-1e-4)), "optim.lr = -0.0001: set it above 0"),
        (Config(optim=Optim(betas=(0.9, 1.0))), "optim.betas = (0.9, 1.0): set it below 1"),
        (Config(scenes=Path("no/such")), "scenes = 'no/such': no such file or folder; check the path"),
    ],
)
def test_check_refuses_impossible_values(config, expected):
    assert message(lambda: check(config)) == expected


def test_check_returns_a_sound_config(tmp_path):
    config = Config(scenes=tmp_path)
    assert check(config) is config


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("c.yaml", "a: [1", "c.yaml is no valid yaml"),
        ("c.json", "{", "c.json is no valid json"),
        ("c.yaml", "- 1", "holds [1]"),
        ("c.toml", "", "'.toml'"),
        ("c.yaml", None, "cannot read"),
        ("c.json", "[" * 100_000, "c.json is no valid json"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, name, content, part):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert part in message(lambda: load_config(Config, tmp_path / name))


def refusal(act) -> str:
    try:
        act()
    except ConfigError as error:
        return str(error)
    return "taken"


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)
WORDS = st.sampled_from(["--seed", "--whiten", "--sizes", "3", "x", "--no-whiten", "=", "--optim", "-1"]) | st.text()


@pytest.mark.slow
@settings_of(max_examples=50)
@given(VALUES)
def test_any_value_is_taken_or_refused_in_one_line(value):
    for leaf in ("seed", "sizes", "scenes", "optim", "whiten", "lora", "guide"):
        assert len(refusal(lambda leaf=leaf: from_mapping(Config, {leaf: value})).splitlines()) == 1


@settings_of(max_examples=50)
@given(st.lists(WORDS))
def test_any_arguments_are_taken_or_refused_in_one_line(args):
    assert len(refusal(lambda: override(Config(), args)).splitlines()) == 1


def test_settings_lists_every_leaf_with_its_value():
    leaves = {leaf.name: leaf for leaf in settings(BASE)}
    assert leaves["optim.lr"].value == 0.5
    assert leaves["optim.lr"].help == "learning rate"
    assert leaves["limit"].type == "a whole number or none"
    assert leaves["guide"].value is None
    assert "guide.weight" in [leaf.name for leaf in settings(Config)]


NINE = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"l0: &l0 [{', '.join('x' * 9)}]\n{NINE}", "more than 100000 values"),
        ("a: &a [*a]", r"\*a stands inside of what it names"),
        ("[" * 100_000, "nested more than 64 deep"),
        ("a: " + "1:" * 5000 + "1", "a number of 10001 characters"),
        (" " * (5 << 20), "more than 4 MiB"),
    ],
)
def test_a_file_made_to_do_harm_is_one_line(tmp_path, text, told):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_config(Config, tmp_path / "a.yaml")


def test_aliases_and_long_texts_within_bounds_are_read():
    assert load_yaml("a: &a [1, 2]\nb: *a\nc: {<<: {d: 3}}") == {"a": [1, 2], "b": [1, 2], "c": {"d": 3}}
    assert load_yaml(f"a: '{'1' * 9000}'\nb: {'x' * 9000}") == {"a": "1" * 9000, "b": "x" * 9000}
