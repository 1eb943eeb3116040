"""Tests of measurements run anywhere: on a busy machine, and beside a real measurement."""

import os
import tempfile

import pytest

from saccade.bench import measure


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(measure, "STOLEN", 1e9)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
