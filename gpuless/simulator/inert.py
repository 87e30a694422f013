"""What makes machine code, where it is only named: modules that write intrinsics can be imported."""

from gpuless.simulator.lacking import NeedsCompiler


class Inert:
    """Whatever a compiler has: asking it for anything, or calling it, gives it again; it is false."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments, **options):
        """Return it again."""
        return self

    def __getitem__(self, index):
        """Return it again."""
        return self

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False


INERT = Inert()


def attribute(name):
    """Return what a module has under a name, as its function `__getattr__`."""
    if name.startswith("pytest"):  # which asks every module for plugins and marks
        raise AttributeError(name)
    return getattr(INERT, name)


def needs_numba(name):
    """Return what stands for a function of Numba's."""
    return NeedsCompiler(name, "pip install numba")
