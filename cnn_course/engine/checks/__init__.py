"""Checks of exercises, which name the mistake in a wrong answer."""
