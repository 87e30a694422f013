"""What numba-cuda writes for a debugger where only lines are wanted.

It writes every line of a function as one of the function's own file, and takes what stands above the function
for its ``def``. So what it inlines itself, device functions with ``inline="always"``, would be shown on lines
that have nothing to do with it. It describes local variables as well, and for some of them NVVM makes names
that it then refuses: "Symbol name with unsupported characters".
"""

import os


def tell_inlined_places():
    """Let numba-cuda write the file and the line of what it has inlined, and no local variables."""
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
