"""What a process of its own does in tests of plans. Apart from those, as it imports what lies beside its work."""

import os

from pairsmith.core.errors import SettingsError
from pairsmith.runs.estimate import Estimate


def say_where():
    """An estimate whose memory is the process's number."""
    return Estimate(seconds=1.0, memory=os.getpid(), disk=0, rows={})


def refuse():
    """Raise an error meant for people."""
    raise SettingsError("told across")
