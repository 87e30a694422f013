"""Modelled times held against published ones."""
