"""How an exercise is checked, and its mistake named."""
