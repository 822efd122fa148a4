// Random sequences of calls on a small tree, in one process and in children that share its open files. What each
// call returns is printed, and in the end what is there. `any_calls SEED STEPS`.
#include "t.h"
#include <linux/falloc.h>
#include <limits.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

enum { SLOTS = 8, BASE = 100, BIG = 1 << 16 };
static uint64_t state;
static int child, pipes[2], root;
static char buf[BIG], other[BIG];
static unsigned rnd(unsigned n) { state = state * 6364136223846793005ull + 1442695040888963407ull; return (unsigned)(state >> 33) % n; }
static int slot(void) { return BASE + rnd(SLOTS); }
static int one_of(const int *v, int n) { return v[rnd(n)]; }
#define ONE(...) ({ static const int v_[] = {__VA_ARGS__}; one_of(v_, sizeof v_ / sizeof *v_); })
static const char *name(void) { static const char *n[] = {"a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "s", "t", "d/s", "d/../a", "./b", "a/", "d/", "s/", "d/.", "none/x", "", "d//a", "loop", "e", "e/a"}; return n[rnd(sizeof n / sizeof *n)]; }
static unsigned hash(const char *p, long n) { unsigned h = 7; for (long i = 0; i < n; i++) h = h * 31 + (unsigned char)p[i]; return h; }
static const char *errs(long r) { return r < 0 ? strerrorname_np(errno) : ""; }
#define SAY(r, fmt, ...) do { long r_ = (errno = 0, (long)(r)); printf("%s" fmt " = %ld %s\n", child ? "  " : "", ##__VA_ARGS__, r_, errs(r_)); } while (0)
#define SAYD(r, p, fmt, ...) do { long r_ = (errno = 0, (long)(r)); printf("%s" fmt " = %ld %s %x\n", child ? "  " : "", ##__VA_ARGS__, r_, errs(r_), r_ > 0 ? hash(p, r_) : 0); } while (0)
static void fill(int n) { unsigned k = rnd(1000); for (int i = 0; i < n; i++) buf[i] = 'a' + (i * 7 + k) % 26; }
static void told(int r, const struct stat *s, const char *what) { if (r) printf("%s %s\n", what, strerrorname_np(errno)); else printf("%s %o %ld %ld\n", what, s->st_mode, S_ISDIR(s->st_mode) ? 0 : (long)s->st_size, S_ISDIR(s->st_mode) ? 0 : (long)s->st_nlink); }
static int is_dir(int f) { struct stat s; return !fstat(f, &s) && S_ISDIR(s.st_mode); }
static int is_pipe(int f) { struct stat s; return !fstat(f, &s) && S_ISFIFO(s.st_mode); }
static void put_in(int f, int to) { if (f >= 0) { int ce = fcntl(f, F_GETFD); dup3(f, to, ce & FD_CLOEXEC ? O_CLOEXEC : 0); close(f); } }
static int try_open(int dirfd, const char *p, int fl, int mode) { struct stat s; if (!fstatat(dirfd, p, &s, 0) && (S_ISFIFO(s.st_mode))) { errno = ENXIO; return -1; } return openat(dirfd, p, fl, mode); }

static void step(void) {
    int f = slot(), g = slot(); const char *p = name(), *q = name(); struct stat s; off_t o = rnd(100000), o2 = rnd(100000); int n = rnd(4) ? rnd(3000) : rnd(BIG);
    switch (rnd(52)) {
    case 0: case 1: case 2: case 3: { int fl = ONE(O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR, O_ACCMODE) | ONE(0, 0, O_APPEND, O_NONBLOCK, O_CLOEXEC, O_SYNC) | ONE(0, O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_CREAT | O_TRUNC, O_TRUNC, O_DIRECTORY, O_PATH, O_NOFOLLOW, O_TMPFILE, O_PATH | O_NOFOLLOW, O_PATH | O_DIRECTORY); int r = (errno = 0, try_open(AT_FDCWD, p, fl, 0640)); printf("%sopen %s %o = %d %s\n", child ? "  " : "", p, fl, r >= 0, errs(r)); put_in(r, f); break; }
    case 4: { int at = open(p, O_RDONLY | O_DIRECTORY), r = (errno = 0, try_open(rnd(2) ? at : root, q, O_RDWR | O_CREAT, 0600)); printf("%sopenat %s %s = %d %s\n", child ? "  " : "", p, q, r >= 0, errs(r)); put_in(r, f); close(at); break; }
    case 5: SAY(close(f), "close %d", f); break;
    case 6: SAY(dup2(f, g), "dup2 %d %d", f, g); break;
    case 7: case 8: case 9: if (is_pipe(f)) break; SAYD(read(f, buf, n), buf, "read %d %d", f, n); break;
    case 10: case 11: case 12: case 13: fill(n); SAY(write(f, buf, n), "write %d %d", f, n); break;
    case 14: SAYD(pread(f, buf, n, o), buf, "pread %d %d %ld", f, n, o); break;
    case 15: case 16: fill(n); SAY(pwrite(f, buf, n, o), "pwrite %d %d %ld", f, n, o); break;
    case 17: { struct iovec v[3] = {{buf, n / 3}, {buf + n / 3, 0}, {buf + n / 3, n - n / 3}}; int fl = ONE(0, 0, RWF_APPEND, RWF_DSYNC, RWF_HIPRI); long at = rnd(3) ? o : -1; fill(n); SAY(pwritev2(f, v, 3, at, fl), "pwritev2 %d %d %ld %x", f, n, at, fl); break; }
    case 18: { struct iovec v[2] = {{buf, n / 2}, {buf + n / 2, n - n / 2}}; if (is_pipe(f)) break; SAYD(rnd(2) ? preadv(f, v, 2, o) : readv(f, v, 2), buf, "preadv %d %d %ld", f, n, o); break; }
    case 19: case 20: { int w = ONE(SEEK_SET, SEEK_CUR, SEEK_END, 9); long at = (long)o - (w == SEEK_SET ? 0 : 50000); if (is_dir(f)) { w = SEEK_SET; at = 0; } SAY(lseek(f, at, w), "lseek %d %ld %d", f, at, w); break; }
    case 21: SAY(ftruncate(f, o), "ftruncate %d %ld", f, o); break;
    case 22: SAY(truncate(p, o), "truncate %s %ld", p, o); break;
    case 23: { int m = ONE(0, FALLOC_FL_KEEP_SIZE, 3, FALLOC_FL_ZERO_RANGE, FALLOC_FL_ZERO_RANGE | 1); SAY(fallocate(f, m, o, n), "fallocate %d %x %ld %d", f, m, o, n); break; }
    case 24: told(fstat(f, &s), &s, "fstat"); break;
    case 25: told(rnd(2) ? stat(p, &s) : lstat(p, &s), &s, p); break;
    case 26: if (child) break; SAY(rename(p, q), "rename %s %s", p, q); break;
    case 27: { if (child) break; int fl = ONE(0, RENAME_NOREPLACE, RENAME_EXCHANGE, 99); SAY(renameat2(AT_FDCWD, p, AT_FDCWD, q, fl), "renameat2 %s %s %d", p, q, fl); break; }
    case 28: SAY(link(p, q), "link %s %s", p, q); break;
    case 29: { int fl = ONE(AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, 0, 0x9999); SAY(rnd(2) ? linkat(AT_FDCWD, p, AT_FDCWD, q, fl & ~AT_EMPTY_PATH) : is_dir(f) ? -1 : linkat(f, "", AT_FDCWD, q, AT_EMPTY_PATH), "linkat %s %s %x", p, q, fl); break; }
    case 30: { static const char *to[] = {"a", "d", "../a", "none", "s", "d/e", "."}; const char *t = to[rnd(7)]; SAY(symlink(t, p), "symlink %s %s", t, p); break; }
    case 31: case 32: SAY(unlink(p), "unlink %s", p); break;
    case 33: if (child) break; SAY(rmdir(p), "rmdir %s", p); break;
    case 34: case 35: SAY(mkdir(p, 0750), "mkdir %s", p); break;
    case 36: { int m = ONE(S_IFREG, 0, S_IFIFO, S_IFDIR); SAY(mknod(p, m | 0600, 0), "mknod %s %o", p, m); break; }
    case 37: { int m = rnd(512) | 0600; if (is_dir(f)) m |= 0700; SAY(fchmod(f, m), "fchmod %d %o", f, m); break; }
    case 38: { struct timespec t[2] = {{rnd(100000), ONE(5, UTIME_OMIT, 999999999)}, {rnd(100000), ONE(7, UTIME_OMIT, 1000000000)}}; int fl = ONE(0, AT_SYMLINK_NOFOLLOW); SAY(utimensat(AT_FDCWD, p, t, fl), "utimensat %s %x", p, fl); SAY(futimens(f, t), "futimens %d", f); break; }
    case 39: { static const char *k[] = {"user.a", "user.b", "bad", ""}; const char *x = k[rnd(4)]; fill(50); int fl = ONE(0, XATTR_CREATE, XATTR_REPLACE); SAY(rnd(2) ? setxattr(p, x, buf, rnd(50), fl) : fsetxattr(f, x, buf, rnd(50), fl), "setxattr %s %d %s %d", p, f, x, fl); SAYD(getxattr(p, x, buf, 100), buf, "getxattr %s %s", p, x); SAY(fgetxattr(f, "user.a", buf, 10), "fgetxattr %d", f); SAY(listxattr(p, NULL, 0), "listxattr %s", p); if (!rnd(3)) SAY(removexattr(p, x), "removexattr %s %s", p, x); break; }
    case 40: case 41: { int fl = ONE(0, O_APPEND, O_NONBLOCK, O_APPEND | O_NONBLOCK, O_NOATIME); if (is_pipe(f)) break; if (rnd(2)) SAY(fcntl(f, F_SETFL, fl), "F_SETFL %d %o", f, fl); SAY(fcntl(f, F_GETFL) , "F_GETFL %d", f); break; }
    case 42: { struct flock l = {ONE(F_RDLCK, F_WRLCK, F_UNLCK), SEEK_SET, rnd(100), rnd(50)}; if (is_dir(f) || is_pipe(f) || fstat(f, &s) || !s.st_nlink) break; SAY(fcntl(f, F_SETLK, &l), "F_SETLK %d %d %ld %ld", f, l.l_type, l.l_start, l.l_len); l.l_type = F_WRLCK; SAY(fcntl(f, F_GETLK, &l), "F_GETLK %d", f); printf("%d\n", l.l_type); break; }
    case 43: told(lstat(q, &s), &s, q); break;
    case 44: { int a = rnd(2), b = rnd(2); SAY(copy_file_range(f, a ? &o : NULL, g, b ? &o2 : NULL, n, 0), "copy_file_range %d %d %d %ld %ld", f, g, n, a ? o : -1, b ? o2 : -1); break; }
    case 45: { int a = rnd(2); if (is_pipe(g)) break; SAY(sendfile(g, f, a ? &o : NULL, n), "sendfile %d %d %d", g, f, n); break; }
    case 46: { if (is_pipe(f)) break; long r = (errno = 0, splice(f, NULL, pipes[1], NULL, n, SPLICE_F_NONBLOCK)); printf("splice %d %d: %d %s\n", f, n, r > 0, errs(r)); long k; int got = 0; while (r > 0 && (k = read(pipes[0], other, BIG)) > 0) { got += k; if (got >= r) break; } if (r > 0) lseek(f, r > n ? 0 : -r, SEEK_CUR); write(pipes[1], "0123456789", 10); SAY(splice(pipes[0], NULL, g, rnd(2) ? &o : NULL, 10, SPLICE_F_NONBLOCK), "splice to %d", g); fcntl(pipes[0], F_SETFL, O_NONBLOCK); while (read(pipes[0], other, BIG) > 0) ; fcntl(pipes[0], F_SETFL, 0); break; }
    case 47: { if (is_pipe(f)) break; char *m = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, f, 0); printf("mmap %d %s\n", f, m == MAP_FAILED ? strerrorname_np(errno) : ""); if (m != MAP_FAILED) { if (!fstat(f, &s) && s.st_size > 0) printf("%x\n", hash(m, s.st_size < 4096 ? s.st_size : 4096)); munmap(m, 4096); } break; }
    case 48: { if (child) break; SAY(chdir(rnd(2) ? "d" : "e"), "chdir"); char b[PATH_MAX]; char *c = getcwd(b, sizeof b); printf("%s\n", c ? strrchr(c, '/') : strerrorname_np(errno)); told(stat("a", &s), &s, "a"); SAY(access("../a", F_OK), "access"); fchdir(root); break; }
    case 49: { struct dirent **l; int k = scandir(p, &l, NULL, alphasort); printf("scandir %s: %d", p, k < 0 ? -errno : k); for (int i = 0; i < k; i++) printf(" %s/%d", l[i]->d_name, l[i]->d_type); puts(""); break; }
    case 50: SAYD(readlink(p, buf, 100), buf, "readlink %s", p); SAY(access(p, rnd(8)), "access %s", p); break;
    case 51: { static const char *m[] = {"r", "w", "a", "r+", "w+", "a+", "wx"}; const char *how = m[rnd(7)]; if (!stat(p, &s) && S_ISFIFO(s.st_mode)) break; FILE *x = (errno = 0, fopen(p, how)); printf("fopen %s %s %s\n", p, how, x ? "" : strerrorname_np(errno)); if (x) { if (*how != 'r') fprintf(x, "%d lines\n", n); if (how[1] == '+') { rewind(x); printf("%d\n", fgetc(x)); } else if (*how == 'r') printf("%ld\n", (long)fread(buf, 1, 1000, x)); printf("%d\n", fclose(x)); } break; }
    }
}
static void dump(const char *d, int depth) { struct dirent **l; int n = scandir(d, &l, NULL, alphasort); for (int i = 0; i < n; i++) { char p[600]; struct stat s; if (l[i]->d_name[0] == '.') continue; snprintf(p, sizeof p, "%s/%s", d, l[i]->d_name); told(lstat(p, &s), &s, p); if (S_ISREG(s.st_mode)) { int f = open(p, O_RDONLY); unsigned h = 7; long k; while ((k = read(f, buf, BIG)) > 0) h = h * 33 + hash(buf, k); printf(" %x %ld\n", h, (long)listxattr(p, NULL, 0)); close(f); } if (S_ISDIR(s.st_mode) && depth < 5) dump(p, depth + 1); } }
static void fds(void) { for (int f = BASE; f < BASE + SLOTS; f++) { struct stat s; int fl = fcntl(f, F_GETFL); if (fl < 0) continue; printf("fd %d %o %d %ld ", f, fl, fcntl(f, F_GETFD), is_dir(f) ? 0 : (long)lseek(f, 0, SEEK_CUR)); told(fstat(f, &s), &s, ""); } }

int main(int argc, char **argv) {
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 1; int steps = atoi(argv[2]); child = argc > 3; setvbuf(stdout, NULL, _IOFBF, 1 << 16); signal(SIGPIPE, SIG_IGN); umask(022);
    MUST(pipe(pipes)); root = MUST(open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); pipes[0] = MUST(dup2(pipes[0], 90)); pipes[1] = MUST(dup2(pipes[1], 91)); root = MUST(fcntl(root, F_DUPFD_CLOEXEC, 92));
    if (child) { for (int i = 0; i < steps; i++) step(); fflush(stdout); _exit(0); }
    mkdir("d", 0755); put("a", "some content"); put("d/a", "other content"); symlink("a", "s"); symlink("loop", "loop");
    for (int i = 0; i < steps; i++) {
        step();
        if (!rnd(40)) { printf("child\n"); fflush(stdout); unsigned seed = rnd(1 << 30), how = rnd(2); pid_t p = fork(); if (!p) { child = 1; state = seed; if (how) { char a[20], k[8] = "6"; sprintf(a, "%u", seed); execl(argv[0], argv[0], a, k, "child", NULL); _exit(9); } for (int j = 0; j < 6; j++) step(); fflush(stdout); _exit(0); } printf("%d\n", ended(p)); fds(); }
    }
    fds(); fchdir(root); dump(".", 0); fflush(stdout); return 0;
}
