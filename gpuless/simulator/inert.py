"""Placeholders for parts of a compiler, so that modules that define intrinsics can be imported."""

from gpuless.simulator.lacking import NeedsCompiler


class Inert:
    """Any object of a compiler: its attributes, items and calls return it again; it is false."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments, **options):
        """Return it again."""
        return self

    def __getitem__(self, index):
        return self

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False


INERT = Inert()


def attribute(name):
    """Return an attribute of a module of placeholders: its function `__getattr__`."""
    if name.startswith("pytest"):  # pytest asks every module for plugins and marks
        raise AttributeError(name)
    return getattr(INERT, name)


def needs_numba(name):
    """Return a stand-in for a function of Numba."""
    return NeedsCompiler(name, "pip install numba")
