# A recipe for Spack. Written by its documentation and not tried: Spack is not among what the tests can install.
from spack.package import *


class Forebay(Package):
    """I/O forwarding on demand, in user space, for unmodified programs."""

    license("MIT OR Apache-2.0")

    version("main", branch="main")

    depends_on("rust@1.95:", type="build")
    depends_on("gcc", type="build")

    def install(self, spec, prefix):
        cargo = which("cargo")
        cargo("build", "--release", "--locked", "-p", "forebay")
        mkdirp(prefix.bin)
        install("target/release/forebay", prefix.bin)
        forebay = Executable(join_path(prefix.bin, "forebay"))
        forebay("man", join_path(prefix.share, "man", "man1"))
