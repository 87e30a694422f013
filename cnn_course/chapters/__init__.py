"""A folder for each notebook, named after its topic: its exercises, its pictures and what it alone needs."""
