"""Machine code that compiles quickly and runs slowly, for tests that are not about speed."""

import contextlib

import llvmlite.binding as llvm

import gpuless


def compile_plainly(text):
    """Return IR as an object file without making it fast, which takes most of the time."""
    from gpuless.emulator.run import machine

    module = llvm.parse_assembly(text)
    target = machine._target().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=0,
        reloc="pic",
        codemodel="small",
    )
    return target.emit_object(module)


@contextlib.contextmanager
def compiled_plainly(monkeypatch):
    """Compile kernels plainly meanwhile; other tests find no such code, in kernels or on disk."""
    if not gpuless.select().emulated:
        yield
        return
    from gpuless.emulator.run import cache, machine
    from gpuless.emulator.run.launch import Kernel

    code, key, made = Kernel.code, cache.key, []

    def noted(kernel, *arguments):
        before = set(kernel._codes)
        try:
            return code(kernel, *arguments)
        finally:
            made.extend((kernel, each) for each in set(kernel._codes) - before)

    with monkeypatch.context() as patch:
        patch.setattr(machine, "compile_object", compile_plainly)
        patch.setattr(cache, "key", lambda *parts: key(*parts, "plainly"))
        patch.setattr(Kernel, "code", noted)
        yield
    for kernel, each in made:
        kernel._codes.pop(each, None)
