"""Compares modelled times with published ones."""
