// Arguments that the kernel refuses: bad pointers, lengths, flags and paths.
#include "t.h"
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>
#define BAD(x) do { void *bad = NULL; for (int i_ = 0; i_ < 3; i_++) { bad = places[i_]; errno = 0; long r_ = (long)(x); printf("%s [%d]: %s\n", #x, i_, r_ < 0 ? strerrorname_np(errno) : "done"); } } while (0)
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); char *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), b[8192] = "";
    void *places[3] = {none, (void *)-1, (void *)8};
    struct stat s; struct iovec v[3];
    put("f", "0123456789"); int f = MUST(open("f", O_RDWR)), d = MUST(open(".", O_RDONLY | O_DIRECTORY)), l = MUST(open("/dev/null", O_RDWR));
    mkdir("a", 0755); mkdir("a/b", 0755); put("a/b/x", "x");
    BAD(read(f, bad, 4)); BAD(pread(f, bad, 4, 0)); BAD(write(f, bad, 4)); BAD(pwrite(f, bad, 4, 0)); BAD(readv(f, bad, 1)); BAD(writev(f, bad, 2));
    v[0] = (struct iovec){b, 2}; v[2] = v[0];
    BAD((v[1] = (struct iovec){bad, 4}, writev(f, v, 1) < 0 ? -1 : pwritev(f, v + 1, 1, 0))); BAD((v[1] = (struct iovec){bad, 4}, preadv(f, v + 1, 1, 0)));
    v[1] = (struct iovec){b, (size_t)-1}; SHOW(readv(f, v, 2)); SHOW(writev(f, v, 2)); SHOW(readv(f, v, -1)); SHOW(readv(f, v, 1025)); SHOW(readv(f, v, 0)); SHOW(pwritev(f, v, 1, -1)); SHOW(pread(f, b, 1, -1)); SHOW(read(f, b, (size_t)-1)); SHOW(write(f, b, (size_t)-1) < 0 ? -1 : 0);
    BAD(open(bad, O_RDONLY)); BAD(openat(d, bad, O_RDONLY)); BAD(stat(bad, &s)); BAD(stat("f", bad)); BAD(fstat(f, bad)); BAD(lstat("f", bad)); BAD(fstatat(d, "f", bad, 0)); BAD(statx(d, "f", 0, STATX_SIZE, bad)); BAD(access(bad, 0)); BAD(mkdir(bad, 0700)); BAD(rmdir(bad)); BAD(unlink(bad)); BAD(rename(bad, "q")); BAD(rename("f", bad)); BAD(link("f", bad)); BAD(symlink(bad, "q")); BAD(symlink("f", bad)); BAD(readlink(bad, b, 10)); BAD(chmod(bad, 0600)); BAD(chown(bad, -1, -1)); BAD(truncate(bad, 1)); BAD(chdir(bad)); BAD(utimensat(d, "f", bad, 0)); BAD(utimensat(d, bad, NULL, 0)); BAD(statfs("f", bad)); BAD(fstatfs(f, bad)); BAD(getxattr("f", bad, b, 10)); BAD(setxattr("f", "user.x", bad, 4, 0)); BAD(mkfifo(bad, 0600)); BAD(sendfile(l, f, bad, 4)); BAD(copy_file_range(f, bad, f, NULL, 4, 0)); BAD(fcntl(f, F_SETLK, bad)); BAD(getdents64(d, bad, 4096)); BAD(symlink("target", "sl") && errno == EEXIST ? readlink("sl", bad, 10) : -1); BAD(getcwd(bad, 4096) ? 0 : -1);
    // The end of a string must be there too.
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); mprotect(edge + 4096, 4096, PROT_NONE); memset(edge, 'x', 4096); SHOW(open(edge + 4090, O_RDONLY)); strcpy(edge + 4094, "f"); SHOW(open(edge + 4094, O_RDONLY) > 0); SHOW(write(f, edge + 4090, 100) < 0 || 1); lseek(f, 0, SEEK_SET); SHOW(read(f, edge + 4092, 4));
    SHOW(munmap(edge, 4096)); SHOW(open(edge + 4094, O_RDONLY)); SHOW(write(f, edge, 4));
    // Flags that nobody knows.
    SHOW(unlinkat(AT_FDCWD, "a/b/x", 0x9999)); SHOW(access("a/b/x", F_OK)); SHOW(fstatat(d, "f", &s, 0x4000000)); SHOW(statx(d, "f", 0x4000000, STATX_SIZE, (void *)b)); SHOW(statx(d, "f", 0x6000, STATX_SIZE, (void *)b)); SHOW(statx(d, "f", 0, 0x80000000u, (void *)b)); SHOW(linkat(d, "f", d, "q", 0x4000000)); SHOW(fchownat(d, "f", -1, -1, 0x4000000)); SHOW(utimensat(d, "f", NULL, 0x4000000)); SHOW(renameat2(d, "f", d, "q", 0x1000)); SHOW(renameat2(d, "f", d, "q", RENAME_NOREPLACE | RENAME_EXCHANGE)); SHOW(faccessat(d, "f", 0, 0x4000000)); SHOW(access("f", 0x99)); SHOW(setxattr("f", "user.x", "v", 1, 0x99)); SHOW(setxattr("f", "", "v", 1, 0)); SHOW(setxattr("f", "user.x", b, 70000, 0)); SHOW(pwritev2(f, v, 1, 0, 0x4000000)); SHOW(preadv2(f, v, 1, 0, 0x4000000)); SHOW(sync_file_range(f, 0, 1, 0x99)); SHOW(sync_file_range(f, -1, 1, 0)); SHOW(copy_file_range(f, NULL, f, NULL, 1, 9)); SHOW(close_range(500, 400, 0)); SHOW(close_range(400, 500, 0x99)); SHOW(lseek(f, 0, 77)); SHOW(flock(f, 77)); SHOW(posix_fadvise(f, 0, 0, 77)); SHOW(fallocate(f, 0, -1, 5)); SHOW(fallocate(f, 0, 5, 0)); SHOW(ftruncate(f, -1)); SHOW(truncate("f", -1)); SHOW(dup3(f, f, 0)); SHOW(fchmodat(d, "f", 0600, 0x4000000)); SHOW(utimes("f", ((struct timeval[2]){{1, 2000000}, {1, 0}})));
    // Names that are no names.
    SHOW(rename("a/b/.", "c")); SHOW(rename("a/b/..", "c")); SHOW(rename("a/b", "a/.")); SHOW(rename("a/b", "a/..")); SHOW(access("a/b/x", F_OK)); SHOW(mkdir("new/.", 0755)); SHOW(access("new", F_OK)); SHOW(mkdir("a/.", 0755)); SHOW(mkdir("a/..", 0755)); SHOW(rmdir("a/b/.")); SHOW(rmdir("a/b/..")); SHOW(unlink("a/.")); SHOW(unlink("a/..")); SHOW(link("f", "a/.")); SHOW(symlink("f", "a/.")); SHOW(symlink("", "q")); SHOW(open("f/.", O_RDONLY)); SHOW(open("a/.", O_RDONLY | O_DIRECTORY) > 0); SHOW(open("a/.", O_WRONLY | O_CREAT, 0600)); SHOW(stat("f/.", &s)); SHOW(stat("a/b/.", &s)); SHOW(open("", O_RDONLY)); SHOW(stat("", &s)); SHOW(rename("", "q")); SHOW(fchownat(d, "", -1, -1, 0)); SHOW(fchownat(d, "", -1, -1, AT_EMPTY_PATH)); SHOW(fstatat(f, "", &s, 0)); SHOW(fstatat(f, "", &s, AT_EMPTY_PATH)); SHOW(access("f/", F_OK)); SHOW(truncate("f/", 0));
    // Long ones.
    char *p = malloc(9000); for (int n = 4080; n <= 4100; n += 4) { memset(p, '/', n); memcpy(p, "./", 2); p[n - 1] = 'f'; p[n] = 0; errno = 0; int r = open(p, O_RDONLY); printf("%d: %s\n", n, r < 0 ? strerrorname_np(errno) : "open"); if (r >= 0) close(r); }
    memset(p, 'n', 300); p[300] = 0; SHOW(open(p, O_RDONLY)); SHOW(mkdir(p, 0700)); memset(p, 'n', 255); p[255] = 0; SHOW(mkdir(p, 0700)); SHOW(rmdir(p)); memset(p, 'n', 8000); p[8000] = 0; SHOW(stat(p, &s)); SHOW(symlink(p, "q")); SHOW(chdir(p)); SHOW(rename("f", p));
    int depth = 0; strcpy(p, "d"); memset(p, 'd', 200); p[200] = 0; char here[16]; while (depth < 22 && !mkdir(p, 0700) && !chdir(p)) depth++; SHOW(depth >= 18); errno = 0; int deep = open("leaf", O_WRONLY | O_CREAT, 0600); SHOW(deep >= 0 || errno == ENAMETOOLONG); if (deep >= 0) unlink("leaf"); while (depth > 0 && !chdir("..")) { depth--; if (rmdir(p)) break; } SHOW(depth);
}
