"""Text: the course's as a data set, its batches, and text that a trained network writes."""
