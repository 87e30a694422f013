"""No other answers: all wrong ones stand beside the mistakes of the exercises."""
