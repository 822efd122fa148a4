// What the kernel keeps for a file: the limit of its size, and the calls that are about its file system.
#include "t.h"
#include <linux/fs.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
static volatile int caught; static void too_large(int s) { caught++; }
int main(void) {
    char b[4096]; memset(b, 'x', sizeof b); int f = MUST(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644)), g = MUST(open("g", O_RDWR | O_CREAT | O_APPEND | O_TRUNC, 0644));
    signal(SIGXFSZ, too_large); struct rlimit l = {1000, RLIM_INFINITY}; SHOW(setrlimit(RLIMIT_FSIZE, &l));
    SHOW(write(f, b, 600)); SHOW(write(f, b, 600)); SHOW(caught); SHOW(write(f, b, 600)); SHOW(caught); SHOW(lseek(f, 0, SEEK_CUR)); SHOW(pwrite(f, b, 10, 995)); SHOW(pwrite(f, b, 10, 1000)); SHOW(caught); SHOW(pwrite(f, b, 10, 2000)); SHOW(caught); SHOW(ftruncate(f, 1001)); SHOW(ftruncate(f, 1000)); SHOW(truncate("f", 5000)); SHOW(write(f, b, 0)); SHOW(caught);
    SHOW(write(g, b, 900)); SHOW(write(g, b, 900)); SHOW(write(g, b, 900)); SHOW(caught);
    l.rlim_cur = RLIM_INFINITY; SHOW(prlimit(0, RLIMIT_FSIZE, &l, NULL)); SHOW(pwrite(f, b, 10, 2000));
    l.rlim_cur = 1500; setrlimit(RLIMIT_FSIZE, &l); pid_t c = fork(); if (!c) { int h = open("h", O_WRONLY | O_CREAT, 0644); SHOW(write(h, b, 4096)); SHOW(write(h, b, 1)); fflush(stdout); signal(SIGXFSZ, SIG_DFL); write(h, b, 1); _exit(7); } int w; waitpid(c, &w, 0); SHOW(WIFSIGNALED(w) && WTERMSIG(w) == SIGXFSZ); l.rlim_cur = RLIM_INFINITY; setrlimit(RLIMIT_FSIZE, &l);
    // Not at the offset but at the end, without O_APPEND.
    int k = MUST(open("k", O_RDWR | O_CREAT | O_TRUNC, 0644)); struct iovec v = {b, 5}; SHOW(write(k, "0123456789", 10)); SHOW(pwritev2(k, &v, 1, 0, RWF_APPEND)); SHOW(lseek(k, 0, SEEK_CUR)); SHOW(pwritev2(k, &v, 1, -1, RWF_APPEND | RWF_DSYNC)); SHOW(lseek(k, 0, SEEK_CUR)); SHOW(pwritev2(k, &v, 1, 2, RWF_SYNC));
    int n = -1; lseek(k, 4, SEEK_SET); SHOW(ioctl(k, FIONREAD, &n)); SHOW(n); lseek(k, 100, SEEK_SET); SHOW(ioctl(k, FIONREAD, &n)); SHOW(n); SHOW(ioctl(k, FIGETBSZ, &n)); SHOW(n > 0); SHOW(ioctl(k, FIOCLEX)); SHOW(fcntl(k, F_GETFD)); SHOW(ioctl(k, FIONCLEX)); SHOW(fcntl(k, F_GETFD)); SHOW(ioctl(k, TCGETS, b)); SHOW(isatty(k)); n = 1; SHOW(ioctl(k, FIONBIO, &n)); SHOW(ioctl(k, 0x99)); SHOW(ioctl(k, FIONREAD, (void *)8));
    SHOW(fcntl(k, F_GETLEASE)); SHOW(fcntl(k, F_ADD_SEALS, 2)); SHOW(fcntl(k, F_GET_SEALS)); SHOW(fcntl(k, F_GETPIPE_SZ));
    cat("k");
}
