"""Fixes for numba-cuda's debug information, if only source lines are requested.

It attributes every line of a function to the function's file, and lines above the function to its ``def``. So
code that it inlines itself, from device functions with ``inline="always"``, would get unrelated lines. It
also describes local variables, and for some of them NVVM makes names that it then rejects: "Symbol name with
unsupported characters".
"""

import os


def tell_inlined_places():
    """Make numba-cuda write the file and line of inlined code, and no local variables."""
    from numba.cuda.debuginfo import CUDADIBuilder, DIBuilder
    from numba.cuda.lowering import BaseLower, Lower

    lower, locate = Lower.lower_inst, DIBuilder._di_location

    def unless_only_lines(describe):
        def described(self, *arguments, **options):
            if self.emission_kind == "FullDebug":
                describe(self, *arguments, **options)

        return described

    for name in ("mark_variable", "update_variable"):
        setattr(CUDADIBuilder, name, unless_only_lines(getattr(CUDADIBuilder, name)))

    def lower_placed(self, instruction):
        self.debuginfo.place = self.loc
        lower(self, instruction)

    def adjusted(self, line):
        own = self.func_ir.loc  # the line of the first decorator
        is_prologue = self.loc.filename == own.filename and own.line <= line < self.defn_loc.line
        return self.defn_loc.line if is_prologue else line

    def located(self, line):
        place = getattr(self, "place", None)
        path = self.filepath if place is None else os.path.abspath(place.filename)
        if path == self.filepath:
            return locate(self, line)
        add, (folder, name) = self.module.add_debug_info, os.path.split(path)
        file = add("DIFile", {"directory": folder, "filename": name})
        parts = {"scope": self.subprograms[-1], "file": file, "discriminator": 0}
        scope = add("DILexicalBlockFile", parts)
        return add("DILocation", {"line": line, "column": 1, "scope": scope})

    Lower.lower_inst, DIBuilder._di_location = lower_placed, located
    BaseLower._adjust_line_if_prologue = adjusted
