"""Settings of training and of decoding."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saccade.config.base import Count, Float, Positive, Settings, Share, Texts

Rate = Annotated[Float, Field(gt=0)]


class OptimizerSettings(Settings):
    """Adam, with or without decoupled weight decay (Kingma and Ba 2015; Loshchilov and Hutter 2019)."""

    kind: Literal["adam", "adamw"] = "adamw"
    rate: Rate = 1e-3  # the highest learning rate; the schedule says when
    beta1: Share = 0.9
    beta2: Share = 0.98
    epsilon: Rate = 1e-9
    weight_decay: Annotated[Float, Field(ge=0)] = 0.01  # on matrices only; adamw
    # of the rate, from each block to the one below it: what was learned before stays more as it was
    layer_decay: Annotated[Float, Field(gt=0, le=1)] = 1.0


class ScheduleSettings(Settings):
    """The share of the rate at each step: up in a line over `warmup` steps, then as `kind` says."""

    kind: Literal["constant", "inverse_sqrt", "cosine"] = "inverse_sqrt"
    warmup: Count = 200
    floor: Share = 0.0  # share of the rate that cosine ends with
    restart: Positive | None = None  # cosine ends at this step and begins once more, where there are more steps


class TrainSettings(Settings):
    """How a model is trained, whatever it is."""

    seed: Count = 1
    steps: Positive = 1000  # optimizer updates
    minutes: Annotated[Float, Field(gt=0)] | None = None  # stop after so long, evaluations and saves included
    batch_tokens: Positive = 2048  # of the longer side, padding included, in one batch
    accumulate: Positive = 1  # batches per update
    split_when_full: bool = False  # out of memory: cut batches in two until they fit, and keep the update the same
    smoothing: Share = 0.0  # label smoothing
    clip: Annotated[Float, Field(gt=0)] | None = 1.0  # largest gradient norm
    skip_nonfinite: Count = 0  # updates in a row that may be left out because their numbers are not finite
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    log_every: Positive = 50
    evaluate_every: Positive = 250
    save_every: Positive = 250
    keep: Positive = 2  # checkpoints, beside the best
    average: Share = 0.0  # decay of a running average of the weights, which is then what is evaluated and kept
    patience: Positive | None = None  # stop after so many evaluations without a better score
    # of matrix products; auto: bfloat16 where the processor has instructions for it, settled when a run begins
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    threads: Annotated[Positive, Field(le=256)] | None = None  # None: as torch finds them
    start: str | None = None  # a run whose vocabulary and weights, as far as they fit, this one begins with
    tensorboard: bool = False  # write the numbers for TensorBoard, too, into tensorboard/ of the run


class DecodeSettings(Settings):
    """How an answer is searched."""

    beam: Positive = 1
    valid_beam: Positive = 1  # while training: greedy search is enough to tell checkpoints apart
    length_penalty: Annotated[Float, Field(ge=0, le=10)] = 1.0  # exponent of Wu et al. (2016); 0 compares plain sums
    coverage_penalty: Annotated[Float, Field(ge=0)] = 0.0  # for source words that no word of an answer looked at
    minimum_length: Count = 0  # tokens of an answer
    no_repeat: Positive | None = None  # no run of so many tokens twice in an answer
    limit_factor: Annotated[Float, Field(gt=0, le=1e6)] = 2.0  # answers end after factor x source length + extra
    limit_extra: Count = 10
    prefix: str = ""  # text that every answer begins with
    must_include: Texts = ()  # texts that every answer contains ...
    must_not_include: Texts = ()  # ... and texts that none contains
