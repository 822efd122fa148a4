// Calls by number: everything that has a function of its own works that way too.
#include "t.h"
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#define S(call, ...) syscall(SYS_##call, ##__VA_ARGS__)
int main(void) {
    char b[4096] = "";
    struct stat s;
    int f = MUST(S(openat, AT_FDCWD, "a", O_RDWR | O_CREAT | O_TRUNC, 0644));
    SHOW(S(write, f, "0123456789", 10));
    SHOW(S(pwrite64, f, "abc", 3, 10L));
    SHOW(S(pread64, f, b, 5, 8L)); puts(b);
    SHOW(S(lseek, f, 2L, SEEK_SET)); memset(b, 0, sizeof b);
    struct iovec v[2] = {{b, 2}, {b + 10, 3}};
    SHOW(S(readv, f, v, 2)); printf("%s %s\n", b, b + 10);
    struct iovec w[2] = {{"XX", 2}, {"YYY", 3}};
    SHOW(S(pwritev, f, w, 2, 1L, 0L)); SHOW(S(preadv, f, v, 2, 0L, 0L)); printf("%s %s\n", b, b + 10);
    SHOW(S(pwritev2, f, w, 1, 20L, 0L, 0)); SHOW(S(preadv2, f, v, 2, 19L, 0L, 0)); SHOW(S(writev, f, w, 2));
    SHOW(S(fstat, f, &s)); SHOW(s.st_size); SHOW(S_ISREG(s.st_mode)); SHOW(S(newfstatat, AT_FDCWD, "a", &s, 0)); SHOW(s.st_size); SHOW(S(newfstatat, f, "", &s, AT_EMPTY_PATH)); SHOW(s.st_size);
    struct statx x; SHOW(S(statx, AT_FDCWD, "a", 0, STATX_SIZE, &x)); SHOW(x.stx_size);
    SHOW(S(fsync, f)); SHOW(S(fdatasync, f)); SHOW(S(ftruncate, f, 100L)); SHOW(S(fallocate, f, 0, 0L, 200L)); SHOW(S(fstat, f, &s)); SHOW(s.st_size);
    SHOW(S(fadvise64, f, 0L, 0L, POSIX_FADV_SEQUENTIAL)); SHOW(S(fadvise64, f, 0L, 0L, 99)); SHOW(S(readahead, f, 0L, 10L)); SHOW(S(flock, f, LOCK_EX)); SHOW(S(flock, f, LOCK_UN));
    int g = MUST(S(openat, AT_FDCWD, "g", O_RDWR | O_CREAT | O_TRUNC, 0600));
    loff_t from = 0, to = 5; SHOW(S(copy_file_range, f, &from, g, &to, 50L, 0)); SHOW(from); SHOW(to); SHOW(S(fstat, g, &s)); SHOW(s.st_size);
    off_t at = 3; SHOW(S(sendfile, g, f, &at, 7L)); SHOW(at);
    struct open_how how = {.flags = O_RDONLY}; int h; SHOW((h = S(openat2, AT_FDCWD, "g", &how, sizeof how)) > 0); memset(b, 0, sizeof b); SHOW(S(read, h, b, 4L)); SHOW(S(close, h));
    how.flags = 1ull << 40; SHOW(S(openat2, AT_FDCWD, "g", &how, sizeof how)); how.flags = O_RDONLY; how.mode = 0600; SHOW(S(openat2, AT_FDCWD, "g", &how, sizeof how));
    SHOW(S(mkdirat, AT_FDCWD, "m", 0755)); SHOW(S(linkat, AT_FDCWD, "a", AT_FDCWD, "m/l", 0)); SHOW(S(symlinkat, "l", AT_FDCWD, "m/s")); memset(b, 0, sizeof b); SHOW(S(readlinkat, AT_FDCWD, "m/s", b, sizeof b)); puts(b);
    SHOW(S(fchmodat, AT_FDCWD, "g", 0640)); long r = S(fchmodat2, AT_FDCWD, "g", 0644, 0); if (r < 0 && errno == ENOSYS) r = S(fchmodat, AT_FDCWD, "g", 0644); SHOW(r); SHOW(S(fstat, g, &s)); SHOW(s.st_mode);
    SHOW(S(fchmod, g, 0600)); SHOW(S(fchownat, AT_FDCWD, "g", -1, -1, 0)); SHOW(S(fchown, g, -1, -1)); SHOW(S(utimensat, AT_FDCWD, "g", ((struct timespec[2]){{1000, 0}, {2000, 5}}), 0)); SHOW(S(fstat, g, &s)); SHOW(s.st_mtime);
    SHOW(S(faccessat, AT_FDCWD, "g", R_OK)); SHOW(S(faccessat2, AT_FDCWD, "g", R_OK, AT_EACCESS)); SHOW(S(renameat2, AT_FDCWD, "g", AT_FDCWD, "m/g", 0)); SHOW(S(renameat, AT_FDCWD, "m/g", AT_FDCWD, "g"));
    SHOW(S(setxattr, "a", "user.k", "vv", 2L, 0)); memset(b, 0, sizeof b); SHOW(S(getxattr, "a", "user.k", b, sizeof b)); SHOW(S(fgetxattr, f, "user.k", b, sizeof b)); SHOW(S(listxattr, "a", b, sizeof b) > 0); SHOW(S(removexattr, "a", "user.k")); SHOW(S(fsetxattr, f, "user.k", "v", 1L, 0)); SHOW(S(fremovexattr, f, "user.k"));
    struct statfs fs; SHOW(S(statfs, "a", &fs)); SHOW(S(fstatfs, f, &fs)); SHOW(fs.f_namelen);
    int d = MUST(S(openat, AT_FDCWD, "m", O_RDONLY | O_DIRECTORY)), n = 0; long got; while ((got = S(getdents64, d, b, sizeof b)) > 0) for (long p = 0; p < got; p += *(unsigned short *)(b + p + 16)) n++; SHOW(n); SHOW(S(getdents64, d, b, 3L));
#ifdef SYS_getdents
    SHOW(S(lseek, d, 0L, SEEK_SET)); int seen = 0; while ((got = S(getdents, d, b, sizeof b)) > 0) for (long p = 0, l; p < got; p += l) { l = *(unsigned short *)(b + p + 16); if (!strcmp(b + p + 18, "s")) { seen = 1; SHOW(b[p + l - 1] == DT_LNK); } } SHOW(seen);
    SHOW(S(open, "a", O_RDONLY) > 0); SHOW(S(stat, "a", &s)); SHOW(S(lstat, "m/s", &s)); SHOW(S_ISLNK(s.st_mode)); SHOW(S(access, "a", W_OK)); SHOW(S(mkdir, "n", 0700)); SHOW(S(rmdir, "n")); SHOW(S(creat, "c", 0600) > 0); SHOW(S(rename, "c", "e")); SHOW(S(link, "e", "e2")); SHOW(S(symlink, "e", "e3")); SHOW(S(chmod, "e", 0644)); SHOW(S(unlink, "e2")); memset(b, 0, sizeof b); SHOW(S(readlink, "e3", b, sizeof b)); puts(b);
#endif
    int k = MUST(S(dup, f)); SHOW(S(lseek, k, 0L, SEEK_CUR) == S(lseek, f, 0L, SEEK_CUR)); SHOW(S(dup3, f, 40, O_CLOEXEC)); SHOW(S(fcntl, 40, F_GETFL) & O_ACCMODE); SHOW(S(close, 40)); SHOW(S(read, 40, b, 1L)); SHOW(S(close, k));
    int p[2]; MUST(pipe(p)); SHOW(S(splice, f, NULL, p[1], NULL, 0L, 0)); S(lseek, f, 0L, SEEK_SET); SHOW(S(splice, f, NULL, p[1], NULL, 6L, 0)); memset(b, 0, sizeof b); SHOW(read(p[0], b, 100)); puts(b);
    SHOW(S(chdir, "m")); memset(b, 0, sizeof b); SHOW(S(getcwd, b, sizeof b) == strlen(b) + 1); SHOW(strlen(b) > 2 && !strcmp(b + strlen(b) - 2, "/m")); SHOW(S(getcwd, b, 2L)); SHOW(S(chdir, "..")); SHOW(S(fchdir, d)); SHOW(S(faccessat, AT_FDCWD, "l", F_OK)); SHOW(S(chdir, ".."));
    void *map = (void *)S(mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE, f, 0L); SHOW(map != MAP_FAILED && ((char *)map)[0] == '0');
    SHOW(S(unlinkat, AT_FDCWD, "m/s", 0)); SHOW(S(unlinkat, AT_FDCWD, "m/l", 0)); SHOW(S(unlinkat, AT_FDCWD, "m", AT_REMOVEDIR)); SHOW(S(unlinkat, AT_FDCWD, "a", 0x9999)); SHOW(S(umask, 077)); SHOW(S(umask, 022) == 077); SHOW(S(truncate, "a", 7L)); SHOW(S(close_range, 100, 50, 0));
    pid_t c = fork(); if (!c) { char *a[] = {"cat", "e", NULL}, *e[] = {"X=1", NULL}; put("e", "by execve\n"); fflush(stdout); S(execve, "/bin/cat", a, e); _exit(9); } SHOW(ended(c)); fflush(stdout);
    c = S(fork); if (!c) { write(f, "child", 5); S(exit_group, 3); } SHOW(ended(c)); cat("e");
}
