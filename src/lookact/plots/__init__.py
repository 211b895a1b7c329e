"""Figures."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "learning_curve": "draw_learning_curve read_metrics read_curves read_eval_csv",
        "judge_accuracy": "draw_judge_accuracy read_query_log",
        "episode_sheet": "draw_episode stack_sheets",
        "navigation": "draw_rooms draw_walks",
        "style": "save_figure",
    },
)
