#%Module1.0
## Environment Modules; copy to your module path as forebay/VERSION and set `root` if it is not installed system-wide.
proc ModulesHelp { } {
    puts stderr "Forebay: I/O forwarding on demand. `forebay run --at DIR -- COMMAND`, `forebay --help`."
}
module-whatis "Forebay @VERSION@: I/O forwarding for unmodified programs, in user space"
set root /usr
if { $root ne "/usr" } {
    prepend-path PATH    $root/bin
    prepend-path MANPATH $root/share/man
}
## The site's arbiter, for all users:
## setenv FOREBAY_ARBITER https://arbiter.cluster:7410
