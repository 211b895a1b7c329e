"""LookAct: reinforcement-learning post-training of agents that look and act.

Public is what `lookact.__all__` and the `__all__` of its packages list; everything else may change without notice.
Names are imported when they are first used: `import lookact` loads no torch.

    records       Observation, Decision, Turn, Episode, EpisodeSpec, Preference
    tensors       Batch, TokenInputs
    protocols     Env, Actor, Judge, Tracker                         (write your own)
    advantages    leave_one_out, group_normalise, gae, discounted_returns
    losses        reinforce, ppo_clip, kl_loss                       (more in lookact.ops)
    environments  Navigation, SpatialVQA, Tabletop, ChatEnv, GymChat (also as Gymnasium ids: import lookact.envs)
    models        load_chat, make_tiny, ChatVLM, VLA
    rollouts      collect, make_specs, Sampling, HFSampler, VllmSampler
    data          collate, EpisodeStore, Replay
    judges        VLMJudge, JudgeClient
    runs          open_run, load_checkpoint, load_config, setting, derive
    errors        LookActError, ConfigError, DataError, ParseError

The packages, in the order of their layers: config · ops, text · envs, models, judges, data · rollout, training,
rewards · algorithms · plots, planning · tasks · recipes · viewer · cli. The command line is `lookact --help`; a
recipe's algorithm is in `lookact/recipes/<name>/train.py`.
"""

from typing import TYPE_CHECKING

from lookact.lazy import lazy_exports

if TYPE_CHECKING:
    from lookact.batch import Batch as Batch
    from lookact.batch import TokenInputs as TokenInputs
    from lookact.config import load_config as load_config
    from lookact.config import setting as setting
    from lookact.data.episode_store import EpisodeStore as EpisodeStore
    from lookact.data.packing import collate as collate
    from lookact.data.replay import Replay as Replay
    from lookact.envs.rooms.navigation import Navigation as Navigation
    from lookact.envs.rooms.spatial_vqa import SpatialVQA as SpatialVQA
    from lookact.envs.tabletop.env import Tabletop as Tabletop
    from lookact.envs.wrappers.chat_env import ChatEnv as ChatEnv
    from lookact.envs.wrappers.gym_chat import GymChat as GymChat
    from lookact.errors import ConfigError as ConfigError
    from lookact.errors import DataError as DataError
    from lookact.errors import LookActError as LookActError
    from lookact.errors import ParseError as ParseError
    from lookact.judges.client import JudgeClient as JudgeClient
    from lookact.judges.vlm_judge import VLMJudge as VLMJudge
    from lookact.models.vla.policy import VLA as VLA
    from lookact.models.vlm.loading import load_chat as load_chat
    from lookact.models.vlm.policy import ChatVLM as ChatVLM
    from lookact.models.vlm.tiny import make_tiny as make_tiny
    from lookact.ops.advantages import discounted_returns as discounted_returns
    from lookact.ops.advantages import gae as gae
    from lookact.ops.advantages import group_normalise as group_normalise
    from lookact.ops.advantages import leave_one_out as leave_one_out
    from lookact.ops.losses import kl_loss as kl_loss
    from lookact.ops.losses import ppo_clip as ppo_clip
    from lookact.ops.losses import reinforce as reinforce
    from lookact.protocols import Actor as Actor
    from lookact.protocols import Env as Env
    from lookact.protocols import Judge as Judge
    from lookact.protocols import Tracker as Tracker
    from lookact.rollout.collect import collect as collect
    from lookact.rollout.collect import make_specs as make_specs
    from lookact.rollout.samplers.hf import HFSampler as HFSampler
    from lookact.rollout.samplers.settings import Sampling as Sampling
    from lookact.rollout.samplers.vllm import VllmSampler as VllmSampler
    from lookact.seeding import derive as derive
    from lookact.training.checkpoint import load_checkpoint as load_checkpoint
    from lookact.training.run import open_run as open_run
    from lookact.types import Decision as Decision
    from lookact.types import Episode as Episode
    from lookact.types import EpisodeSpec as EpisodeSpec
    from lookact.types import Observation as Observation
    from lookact.types import Preference as Preference
    from lookact.types import Turn as Turn

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "types": "Observation Decision Turn Episode EpisodeSpec Preference",
        "batch": "Batch TokenInputs",
        "protocols": "Env Actor Judge Tracker",
        "ops.advantages": "leave_one_out group_normalise gae discounted_returns",
        "ops.losses": "reinforce ppo_clip kl_loss",
        "envs.rooms.navigation": "Navigation",
        "envs.rooms.spatial_vqa": "SpatialVQA",
        "envs.tabletop.env": "Tabletop",
        "envs.wrappers.chat_env": "ChatEnv",
        "envs.wrappers.gym_chat": "GymChat",
        "models.vlm.loading": "load_chat",
        "models.vlm.tiny": "make_tiny",
        "models.vlm.policy": "ChatVLM",
        "models.vla.policy": "VLA",
        "rollout.collect": "collect make_specs",
        "rollout.samplers.settings": "Sampling",
        "rollout.samplers.hf": "HFSampler",
        "rollout.samplers.vllm": "VllmSampler",
        "data.packing": "collate",
        "data.episode_store": "EpisodeStore",
        "data.replay": "Replay",
        "judges.vlm_judge": "VLMJudge",
        "judges.client": "JudgeClient",
        "training.run": "open_run",
        "training.checkpoint": "load_checkpoint",
        "config": "load_config setting",
        "seeding": "derive",
        "errors": "LookActError ConfigError DataError ParseError",
    },
)
