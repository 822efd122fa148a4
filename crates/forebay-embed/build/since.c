/* What glibc has had only since 2.32 and 2.33, and what the standard library of Rust takes for granted. Hidden: nobody
 * else finds these. The kernel's `struct stat` is the program's on the 64-bit machines that are supported. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN int stat64(const char *path, void *into) { return syscall(SYS_newfstatat, AT_FDCWD, path, into, 0); }
HIDDEN int lstat64(const char *path, void *into) { return syscall(SYS_newfstatat, AT_FDCWD, path, into, AT_SYMLINK_NOFOLLOW); }
HIDDEN int fstat64(int fd, void *into) { return syscall(SYS_fstat, fd, into); }
HIDDEN int fstatat64(int fd, const char *path, void *into, int flags) { return syscall(SYS_newfstatat, fd, path, into, flags); }

/* It may have several. */
HIDDEN char __libc_single_threaded = 0;
