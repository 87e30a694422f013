"""Check that only this user can write to a cache: code loaded from it is executed."""

import os
import stat
from pathlib import Path


def doubt(state: os.stat_result) -> str:
    """Return why other users may have written to a file or folder of this state; "" if only this user can."""
    if not hasattr(os, "geteuid"):  # Windows, where the mode doesn't say who can write
        return ""
    if state.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users may write to it" if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def doubt_folder(path: Path | str) -> str:
    """Return why another user may have written to a folder, or replaced it; "" if only this user can."""
    path = Path(os.path.realpath(path))
    for parent in path.parents:
        # With the sticky bit, as in /tmp, only a file's owner can replace it.
        if parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            return f"all users may replace what is in {parent}"
    return doubt(path.stat())
