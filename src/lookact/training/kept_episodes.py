"""Kept episodes, under their former path; they are in `evaluation.py`."""

from lookact.training.evaluation import EPISODES as EPISODES
from lookact.training.evaluation import EVALUATION_KEPT as EVALUATION_KEPT
from lookact.training.evaluation import KEPT as KEPT
from lookact.training.evaluation import keep_episodes as keep_episodes
from lookact.training.evaluation import keep_evaluation as keep_evaluation
from lookact.training.evaluation import step_name as step_name
from lookact.training.evaluation import without_depth as without_depth
