// One open file in several processes and threads: locks, copies within it, a buffer that ends, cancelled threads.
#include "t.h"
#include <pthread.h>
#include <sys/sendfile.h>
static int what;
static void *forever(void *a) { int f = open("cancelled", O_RDWR | O_CREAT, 0644); char b[8]; (void)a; for (;;) switch (what) { case 0: write(f, "c", 1); lseek(f, 0, SEEK_SET); break; case 1: pread(f, b, 1, 0); break; case 2: close(open("cancelled", O_RDONLY)); break; default: fsync(f); } return NULL; }
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    // A lock that a child takes through what it inherited outlives the child.
    put("l", ""); int f = MUST(open("l", O_RDWR)), g = MUST(open("l", O_RDWR)); pid_t p = fork(); if (!p) { SHOW(flock(f, LOCK_EX)); _exit(0); } SHOW(ended(p)); SHOW(flock(g, LOCK_EX | LOCK_NB)); SHOW(flock(f, LOCK_EX | LOCK_NB)); SHOW(flock(f, LOCK_UN)); SHOW(flock(g, LOCK_EX | LOCK_NB)); close(g); close(f);
    // Copies that the kernel refuses.
    put("c", "0123456789abcdef"); f = MUST(open("c", O_RDWR)); off_t a = 0, b = 2; SHOW(copy_file_range(f, &a, f, &b, 10, 0)); a = 0; b = 16; SHOW(copy_file_range(f, &a, f, &b, 10, 0)); g = MUST(open("c", O_WRONLY | O_APPEND)); a = 0; SHOW(copy_file_range(f, &a, g, NULL, 4, 0)); a = 0; SHOW(sendfile(g, f, &a, 4)); int pipes[2]; MUST(pipe(pipes)); MUST(write(pipes[1], "xy", 2)); SHOW(splice(pipes[0], NULL, g, NULL, 2, 0)); cat("c"); close(g);
    // A buffer whose end is not there takes what it can.
    char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(m + 4096, 4096); SHOW(pread(f, m + 4090, 16, 0)); SHOW(memcmp(m + 4090, "012345", 6)); SHOW(pread(f, m + 4096, 16, 0)); close(f);
    // Threads are cancelled.
    for (what = 0; what < 4; what++) { p = fork(); if (!p) { pthread_t t; void *r; alarm(60); pthread_create(&t, NULL, forever, NULL); usleep(50000); pthread_cancel(t); pthread_join(t, &r); SHOW(r == PTHREAD_CANCELED); _exit(0); } SHOW(ended(p)); }
    return 0;
}
