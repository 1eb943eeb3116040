"""Training: the trainer, its optimizers, and the directory in which a run lives."""
