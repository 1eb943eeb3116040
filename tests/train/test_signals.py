"""Being asked to stop, once and twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from saccade.train.signals import watch_for_stop


def test_the_first_signal_only_sets_a_flag_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with watch_for_stop() as stop:
        assert not stop
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop
        assert stop.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_signal_ends_the_process_at_once() -> None:
    code = (
        "import os, signal\n"
        "from saccade.train.signals import watch_for_stop\n"
        "with watch_for_stop():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    raise SystemExit('still here')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == ""
