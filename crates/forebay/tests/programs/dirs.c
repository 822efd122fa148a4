// Directory streams, walks, the working directory, names and what /proc says of descriptors.
#include "t.h"
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
static char seen[400][64]; static int n;
static int add(const char *p, const struct stat *s, int t, struct FTW *f) { snprintf(seen[n++], 64, "%s %d %d", p, t, f->level); return 0; }
static int cmp(const void *a, const void *b) { return strcmp(a, b); }
static int notdot(const struct dirent *d) { return d->d_name[0] != '.'; }
static int byname(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }
static const char *rel(const char *p) { const char *d = getenv("D"); return p && !strncmp(p, d, strlen(d)) ? p + strlen(d) : p ? p : strerrorname_np(errno); }
int main(void) {
    char b[PATH_MAX], name[32]; mkdir("d", 0755); mkdir("d/s", 0755); mkdir("d/s/t", 0700); put("d/s/t/f", "x"); symlink("s", "d/l"); for (int i = 0; i < 500; i++) { snprintf(name, 32, "d/file%03d", i); close(creat(name, 0644)); }
    DIR *d = opendir("d"); int count = 0, dirs = 0, links = 0; struct dirent *e; long at = 0; char after[256] = ""; while ((e = readdir(d))) { count++; dirs += e->d_type == DT_DIR; links += e->d_type == DT_LNK; struct stat s; if (fstatat(dirfd(d), e->d_name, &s, AT_SYMLINK_NOFOLLOW) || s.st_ino != e->d_ino) { if (strcmp(e->d_name, "..")) printf("inode of %s\n", e->d_name); } if (count == 250) { at = telldir(d); e = readdir(d); count++; strcpy(after, e->d_name); } } printf("%d %d %d\n", count, dirs, links);
    seekdir(d, at); e = readdir(d); printf("%d\n", !strcmp(after, e->d_name)); rewinddir(d); for (count = 0; readdir(d); count++); printf("%d\n", count); rewinddir(d); while ((e = readdir(d))) if (e->d_name[0] == 'f') unlinkat(dirfd(d), e->d_name, 0); rewinddir(d); for (count = 0; readdir(d); count++); printf("%d\n", count); SHOW(closedir(d)); SHOW(opendir("nothere") == NULL); SHOW(opendir("d/s/t/f") == NULL);
    int fd = MUST(open("d", O_RDONLY | O_DIRECTORY)); d = fdopendir(fd); SHOW(dirfd(d) == fd); for (count = 0; readdir(d); count++); printf("%d\n", count); closedir(d); SHOW(close(fd));
    struct dirent **list; int k = scandir("d", &list, notdot, alphasort); for (int i = 0; i < k; i++) printf("%s ", list[i]->d_name); puts("");
    nftw("d", add, 10, FTW_PHYS); qsort(seen, n, 64, cmp); for (int i = 0; i < n; i++) puts(seen[i]); n = 0; nftw("d", add, 10, FTW_DEPTH | FTW_CHDIR); qsort(seen, n, 64, cmp); for (int i = 0; i < n; i++) puts(seen[i]);
    glob_t g; SHOW(glob("d/*/*", GLOB_MARK, NULL, &g)); for (size_t i = 0; i < g.gl_pathc; i++) puts(g.gl_pathv[i]); char *roots[] = {"d", NULL}; FTS *f = fts_open(roots, FTS_PHYSICAL, byname); FTSENT *x; while ((x = fts_read(f))) printf("%s %d\n", x->fts_path, x->fts_info); fts_close(f);
    // Where we are.
    SHOW(chdir("d/l/t")); puts(rel(getcwd(b, sizeof b))); cat("f"); cat("../../s/t/f"); put("../up", "up"); SHOW(access("../../l/up", R_OK)); SHOW(chdir("..")); puts(rel(getcwd(NULL, 0))); SHOW(chdir("nothere")); SHOW(chdir("t/f")); fd = MUST(open("t", O_RDONLY | O_DIRECTORY)); SHOW(fchdir(fd)); char *here = get_current_dir_name(); puts(rel(here)); SHOW(getcwd(b, 2) == NULL); SHOW(openat(fd, "f", O_RDONLY) > 0); SHOW(faccessat(fd, "../up", F_OK, 0)); SHOW(mkdirat(fd, "made", 0755)); SHOW(unlinkat(fd, "made", AT_REMOVEDIR)); SHOW(system("pwd | sed 's,.*/d/,,'; ls; cat ../up")); chdir("/"); SHOW(access("tmp", F_OK)); SHOW(chdir(getenv("D"))); SHOW(chdir("..")); puts(rel(realpath(getenv("D"), NULL))); SHOW(chdir(getenv("D")));
    puts(rel(realpath("d/l/t/../up", b))); puts(rel(realpath("d/l/t/f", NULL))); puts(rel(realpath(".", NULL))); puts(rel(realpath("d/none", NULL))); puts(rel(realpath("d/none/x", b))); puts(rel(canonicalize_file_name("./d//s/./t/f"))); SHOW(access("d/s/../../d/./s//t/f", R_OK)); SHOW(access("d/s/t/f/", F_OK)); SHOW(access("d/l/", F_OK)); SHOW(access("", F_OK)); SHOW(access("d/s/t/f", X_OK));
    // What tools do with /proc and /dev.
    fd = MUST(open("d/s/t/f", O_RDWR)); snprintf(b, sizeof b, "/proc/self/fd/%d", fd); char l[PATH_MAX]; long len = readlink(b, l, sizeof l - 1); l[len > 0 ? len : 0] = 0; puts(rel(l)); struct stat s, s2; SHOW(stat(b, &s)); SHOW(fstat(fd, &s2)); SHOW(s.st_ino == s2.st_ino && s.st_size == 1); SHOW(open(b, O_RDONLY) > 0); snprintf(b, sizeof b, "/dev/fd/%d", fd); SHOW(access(b, W_OK)); SHOW(truncate(b, 3)); chdir("d"); len = readlink("/proc/self/cwd", l, sizeof l - 1); l[len > 0 ? len : 0] = 0; puts(rel(l)); SHOW(access("/proc/self/cwd/s/up", F_OK)); chdir(".."); d = opendir("/proc/self/fd"); for (count = 0; readdir(d); count++); SHOW(count > 4); closedir(d);
    // stat in its forms.
    struct statx sx; SHOW(statx(AT_FDCWD, "d/s/up", 0, STATX_BASIC_STATS | STATX_BTIME, &sx)); SHOW(sx.stx_size); SHOW(sx.stx_mode); SHOW((sx.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS); SHOW(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx)); SHOW(sx.stx_size); SHOW(fstatat(fd, "", &s, AT_EMPTY_PATH)); SHOW(lstat("d/l", &s)); SHOW(S_ISLNK(s.st_mode)); SHOW(s.st_size); SHOW(stat("d/l", &s)); SHOW(S_ISDIR(s.st_mode)); stat("d", &s); stat("d/s", &s2); SHOW(s.st_dev == s2.st_dev); SHOW(s.st_nlink); struct statfs fs; SHOW(statfs("d", &fs)); SHOW(fs.f_namelen); SHOW(fstatfs(fd, &fs)); struct statvfs v; SHOW(statvfs(".", &v)); SHOW(v.f_namemax); SHOW(pathconf("d", _PC_NAME_MAX)); SHOW(syscall(SYS_openat, AT_FDCWD, "d/s/up", O_RDONLY) > 0);
    int p = MUST(open("d/s/up", O_PATH)); SHOW(read(p, b, 1)); SHOW(fstat(p, &s)); SHOW(s.st_size); SHOW(openat(AT_FDCWD, "d/l", O_PATH | O_NOFOLLOW) > 0); char big[5000]; memset(big, 'a', 4999); big[4999] = 0; SHOW(open(big, O_RDONLY)); big[300] = 0; SHOW(open(big, O_RDONLY)); SHOW(open(NULL, O_RDONLY)); SHOW(rmdir("d")); SHOW(rmdir("d/l")); SHOW(unlink("d/s")); SHOW(mkdir("d", 0755)); SHOW(mkdir("d/x/y", 0755)); SHOW(rmdir(".")); SHOW(symlink("loop", "loop")); SHOW(open("loop", O_RDONLY)); SHOW(stat("loop/x", &s)); SHOW(unlink("loop"));
    return 0;
}
