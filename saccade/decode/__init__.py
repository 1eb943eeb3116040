"""Search: one loop over a step function and a past, whatever the model is."""

from saccade.decode.methods import Beam, Greedy, Live, Method, Sample
from saccade.decode.phrases import Including, Phrase, containing, without
from saccade.decode.rules import Rule, minimum_length, never, no_repeat, prefix
from saccade.decode.search import Hypothesis, Stop, rerank_by_coverage, search

__all__ = [
    "Beam",
    "Greedy",
    "Hypothesis",
    "Including",
    "Live",
    "Method",
    "Phrase",
    "Rule",
    "Sample",
    "Stop",
    "containing",
    "minimum_length",
    "never",
    "no_repeat",
    "prefix",
    "rerank_by_coverage",
    "search",
    "without",
]
