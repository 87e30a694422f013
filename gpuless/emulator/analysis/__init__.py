"""Stage 2, analysis: facts about a kernel that follow from its PTX and the shape of a thread block.

First the PTX is rewritten (`inlining`, `signs`, `contractions`). `flow` then finds the basic blocks and their
order, and `uniformity` finds what each register holds in the lanes of a warp, and where lanes are masked.
"""
