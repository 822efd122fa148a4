-- Lmod; copy to your module path as forebay/VERSION.lua and set `root` if it is not installed system-wide.
help([[Forebay: I/O forwarding on demand. `forebay run --at DIR -- COMMAND`, `forebay --help`.]])
whatis("Name: Forebay")
whatis("Version: @VERSION@")
whatis("Category: I/O, runtime")
whatis("Description: I/O forwarding for unmodified programs, in user space")
local root = "/usr"
if root ~= "/usr" then
    prepend_path("PATH", pathJoin(root, "bin"))
    prepend_path("MANPATH", pathJoin(root, "share/man"))
end
-- The site's arbiter, for all users:
-- setenv("FOREBAY_ARBITER", "https://arbiter.cluster:7410")
