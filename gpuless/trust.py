"""Whether a cache is this user's alone: what is loaded from it runs."""

import os
import stat
from pathlib import Path


def doubt(state: os.stat_result) -> str:
    """Return why another user may have written to a file or a folder, "" if only this one may write to it.

    Parameters
    ----------
    state : os.stat_result
        Of the file or the folder.
    """
    if not hasattr(os, "geteuid"):  # Windows, where a mode says nothing of that
        return ""
    if state.st_uid != os.geteuid():
        return "it belongs to another user"
    return "other users may write to it" if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def doubt_folder(path: Path | str) -> str:
    """Return why another user may have put files into a folder, or another folder in its place; else ""."""
    path = Path(os.path.realpath(path))
    for parent in path.parents:
        # In a folder for all, such as /tmp, only the owner of what is in it may put something else there.
        if parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            return f"all users may replace what is in {parent}"
    return doubt(path.stat())
