"""Analyse a kernel before `translate`: facts that follow from its PTX and the shape of a thread block.

First the PTX is rewritten (`inlining`, `signs`, `contractions`). `flow` then finds the basic blocks and their
order. `definitions` renames registers, so that more is known of each. `uniformity` finds what each register
holds in the lanes of a warp (`rules`, `lanes`), and which blocks run under a mask.
"""
