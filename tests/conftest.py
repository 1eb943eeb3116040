"""Settings for all tests."""

import torch

# the models here are too small to share among threads, and a test's time must not depend on what else is running
torch.set_num_threads(1)
