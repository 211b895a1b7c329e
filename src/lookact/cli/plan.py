"""Say whether a run fits its GPUs, and how long a step takes, before anything is fetched or rented: the recipe's own
model, optimiser and sampler run on tensors without content. Bytes a GPU by phase and kind, and the setting to turn
first."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from lookact.cli.output import say
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.cli.recipes import add_recipe_options, make_config, show_help
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from lookact.planning.report import Plan
    from lookact.planning.token_plan import TokenRun

TAKES_SETTINGS = True
EXAMPLES = (
    "lookact plan nav-rloo --preset full --gpu H100x8",
    "lookact plan vqa-ppo --preset full --gpu L40S --learn.token_budget 16384 --json",
    "lookact plan nav-rloo --preset 2b --gpu RTX4090",
    "lookact plan pref-sac --preset full --gpu L4 --served Qwen/Qwen3-VL-4B-Instruct",
)
TEXT_TOKENS, REPLY_TOKENS, ENV_SECONDS = 40, 80, 0.083
"""Of an observation, of a usual reply, and of a view of a scanned room at 448 pixels."""
JUDGE_TOKENS, BATCH = 256, 16
"""Of a judge's question; requests that `lookact serve` answers together."""


def add_options(parser: Parser) -> None:
    add_recipe_options(parser)
    add = parser.add_argument
    add("--gpu", metavar="GPU[xN]", default="H100", help="such as RTX4090, L40S, A100x2, H100x8 (default: H100)")
    add("--text-tokens", metavar="N", type=positive_int, default=TEXT_TOKENS, help="of an observation (default: 40)")
    add("--reply-tokens", metavar="N", type=positive_int, default=REPLY_TOKENS, help="usual ones, for the seconds")
    add("--env-seconds", metavar="S", type=float, default=ENV_SECONDS, help="of an environment step, on one core")
    add("--served", metavar="M", help="pref-sac: the judge's model (default: Qwen/Qwen3-VL-8B-Instruct)")
    add("--quantise", choices=("nf4",), help="pref-sac: the judge's weights in 4 bits")
    add("--json", action="store_true", help="print the plan as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    if show_help(parser, arguments):
        return
    cfg = make_config(arguments, words, parser=parser)
    plan = make_plan(arguments, cfg)
    say(json.dumps(plan.as_mapping(), indent=2) if arguments.json else plan.as_text())


def make_plan(arguments: Arguments, cfg: Any) -> Plan:
    """The plan of a recipe's config on the GPUs that the arguments name."""
    from lookact.planning.token_plan import plan_tokens

    if hasattr(cfg, "judge"):
        return judge_plan(arguments, cfg)
    if hasattr(cfg, "bc"):
        return control_plan(arguments, cfg)
    if not hasattr(cfg, "sampling"):
        known = "nav-rloo, vqa-ppo, vla-ppo or pref-sac"
        raise ConfigError(f"{arguments.recipe} is too small to need a plan: choose {known}")
    title = f"{arguments.recipe}, preset {arguments.preset or 'small'}, {cfg.model.source}, {arguments.gpu}"
    return plan_tokens(token_run(arguments, cfg), title=title)


def judge_plan(arguments: Arguments, cfg: Any) -> Plan:
    """The server that pref-sac asks: `lookact serve` in bfloat16, with the batch that it has by default."""
    from lookact.algorithms.vlm_settings import Model
    from lookact.judges.prompts import DESCRIPTION_TOKENS
    from lookact.planning.devices import parse_gpus
    from lookact.planning.token_memory import TokenStep
    from lookact.planning.token_plan import make_step, plan_server
    from lookact.rollout.samplers.settings import Sampling

    gpu, _ = parse_gpus(arguments.gpu)
    source = arguments.served or "Qwen/Qwen3-VL-8B-Instruct"
    step = TokenStep(
        model=Model(source=source, dtype="bfloat16", device="cuda", quantise=arguments.quantise),
        config=None,
        sampling=Sampling(),
        # what the judge is shown, which may be larger than the replay's frames
        image_size=cfg.env.judge_image_size or cfg.env.image_size,
        turns=1,
        text_tokens=JUDGE_TOKENS,
        reply_tokens=DESCRIPTION_TOKENS,
        rows=BATCH,
        eval_rows=0,
        token_budget=1,
        images_per_turn=2,
        learns=False,
    )
    return plan_server(make_step(step), gpu, title=f"{arguments.recipe}'s server, {source}, {arguments.gpu}")


def control_plan(arguments: Arguments, cfg: Any) -> Plan:
    """vla-ppo's policy; its seconds are the simulation's, which no data sheet tells."""
    from lookact.models.vla.encoders import TextSpec, VisionSpec
    from lookact.planning.control_memory import ControlStep, control_memory
    from lookact.planning.devices import GPUS, parse_gpus
    from lookact.planning.report import Plan, phases_of
    from lookact.recipes.vla_ppo.task import policy_spec

    gpu, count = parse_gpus(arguments.gpu)
    step = ControlStep(
        policy=policy_spec(cfg.model, cfg.env),
        vision=VisionSpec(**vars(cfg.model.vision)),
        text=TextSpec(**vars(cfg.model.text)),
        image_size=cfg.env.image_size,
        rows=math.ceil(cfg.learn.num_envs / count),
        eval_rows=cfg.evaluation.num_envs,
        minibatch=min(math.ceil(cfg.ppo.minibatch / count), cfg.ppo.micro_batch_size or cfg.ppo.minibatch),
        bc_batch=min(math.ceil(cfg.bc.batch_size / count), cfg.bc.micro_batch_size or cfg.bc.batch_size),
        freeze_encoders=cfg.model.freeze_encoders,
    )
    title = f"{arguments.recipe}, preset {arguments.preset or 'small'}, {cfg.model.vision.source}, {arguments.gpu}"
    phases = phases_of(control_memory(step))
    worst = max(phases, key=lambda phase: phase.total)
    phase, size = ("bc", step.bc_batch) if worst.name == "behaviour cloning" else ("ppo", step.minibatch)
    half, freed = f"--{phase}.micro_batch_size {max(1, size // 2)}", worst.sizes.get("activations", 0.0) / 2**31
    less = f"{half}: half of the activations, {freed:.1f} GiB less"
    told = (f"{step.rows} environments, {step.minibatch} steps at once in PPO and {step.bc_batch} in cloning, a GPU",)
    return Plan(title, f"{gpu} x {count}", GPUS[gpu].memory, phases, less, None, told)


def token_run(arguments: Arguments, cfg: Any) -> TokenRun:
    """What a token recipe's settings come to on these GPUs."""
    from lookact.planning.devices import GPUS, parse_gpus
    from lookact.planning.token_memory import TokenStep
    from lookact.planning.token_plan import TokenRun, make_step

    gpu, count = parse_gpus(arguments.gpu)
    learn, ray = cfg.learn, getattr(cfg, "ray", None)
    samplers = math.ceil(ray.workers * ray.gpus) if ray else 0
    learners = count - samplers
    if learners < 1:
        raise ConfigError(
            f"--gpu {arguments.gpu}: {samplers} GPUs are for workers (ray.workers), none is left to learn"
        )
    episodes = learn.episodes if hasattr(learn, "episodes") else learn.groups * learn.group_size
    own = math.ceil(episodes / learners)
    group = next((name for name, part in vars(cfg).items() if hasattr(part, "max_concurrent_episodes")), None)
    limit = 0 if group is None else getattr(cfg, group).max_concurrent_episodes
    engine = getattr(cfg, "sampler", getattr(cfg, "engine", "hf")) != "hf"
    parallel, critic = getattr(cfg, "parallel", None), getattr(cfg, "critic", None)
    step = TokenStep(
        model=cfg.model,
        config=None,
        sampling=cfg.sampling,
        image_size=cfg.env.image_size,
        turns=cfg.env.max_turns,
        text_tokens=arguments.text_tokens,
        reply_tokens=cfg.sampling.max_tokens,
        rows=0 if samplers or engine else min(own, limit or own),
        eval_rows=0 if engine else min(cfg.evaluation.num_envs, cfg.evaluation.episodes),
        token_budget=learn.token_budget,
        sharded=parallel is not None and parallel.kind == "shard",
        processes=learners,
        reference=cfg.kl.reference,
        critic="none" if critic is None else critic.backbone,
        engine_bytes=cfg.vllm.kv_cache_memory * GPUS[gpu].memory if engine and not samplers else 0.0,
        engine_sleeps=engine and cfg.vllm.sleep,
    )
    return TokenRun(
        step=make_step(step),
        gpu=gpu,
        learners=learners,
        samplers=samplers,
        worker_rows=ray.episodes_per_task if ray and samplers else 0,
        episodes=episodes,
        expected_reply=arguments.reply_tokens,
        env_seconds=arguments.env_seconds,
        epochs=learn.epochs,
        sft=cfg.sft.demonstrations > 0,
        rows_setting=f"{group}.max_concurrent_episodes" if group else "learn.episodes",
    )
