"""Scores of answers: pure functions on lists, with what is needed to compare two of them."""

from saccade.metrics.captions import caption_bleu, caption_tokens, cider_d, rouge_l
from saccade.metrics.edits import character_error_rate, edit_distance, word_error_rate
from saccade.metrics.ranking import Confusion, accuracy, confusion, macro_f1, recall_at, recalls
from saccade.metrics.reading import word_accuracy
from saccade.metrics.score import Score, bootstrap_interval, share_score, wilson_interval
from saccade.metrics.translation import bleu, chrf, paired_p_value, streams

__all__ = [
    "Confusion",
    "Score",
    "accuracy",
    "bleu",
    "bootstrap_interval",
    "caption_bleu",
    "caption_tokens",
    "character_error_rate",
    "chrf",
    "cider_d",
    "confusion",
    "edit_distance",
    "macro_f1",
    "paired_p_value",
    "recall_at",
    "recalls",
    "rouge_l",
    "share_score",
    "streams",
    "wilson_interval",
    "word_accuracy",
    "word_error_rate",
]
