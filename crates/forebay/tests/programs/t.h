// What the small C programs of the suite share.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
// A call and how it ended, errno by name.
#define SHOW(x) do { errno = 0; long long r_ = (long long)(x); if (r_ < 0) printf("%s: %s\n", #x, strerrorname_np(errno)); else printf("%s: %lld\n", #x, r_); } while (0)
#define MUST(x) ({ long r_ = (long)(x); if (r_ == -1) { printf("%s:%d %s: %s\n", __FILE_NAME__, __LINE__, #x, strerrorname_np(errno)); fflush(stdout); _exit(70); } r_; })
static inline void put(const char *name, const char *text) { int f = MUST(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644)); MUST(write(f, text, strlen(text))); MUST(close(f)); }
static inline void cat(const char *name) { char b[65536]; int f = MUST(open(name, O_RDONLY)); long n = MUST(read(f, b, sizeof b - 1)); b[n] = 0; printf("%s: %s\n", name, b); MUST(close(f)); }
static inline int ended(pid_t p) { int s; MUST(waitpid(p, &s, 0)); return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s); }
