// Locks between processes: byte ranges, whole files, waiting, signals, and holders that die.
#include "t.h"
#include <pthread.h>
#include <stdatomic.h>
static int lk(int fd, int cmd, int type, off_t start, off_t len) { struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len}; return fcntl(fd, cmd, &l); }
static int holder(int fd, off_t start, off_t len) { struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = len}; if (fcntl(fd, F_GETLK, &l)) return -1; return l.l_type == F_UNLCK ? 0 : l.l_pid; }
static int pipes[2][2];
static void tell(int i) { MUST(write(pipes[i][1], "x", 1)); }
static void hear(int i) { char c; MUST(read(pipes[i][0], &c, 1)); }
static void on_alarm(int s) { (void)s; }
static atomic_int locked;
static void *locker(void *unused) { for (int j = 0; j < 10; j++) { int f = MUST(open("f", O_RDWR)); for (int k = 0; k < 5; k++) { locked += lk(f, F_SETLKW, F_WRLCK, 0, 0) == 0; MUST(lk(f, F_SETLK, F_UNLCK, 0, 0)); } close(f); } return NULL; }
int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); put("f", "0123456789"); MUST(pipe(pipes[0])); MUST(pipe(pipes[1])); int f = MUST(open("f", O_RDWR));
    pid_t p = fork(); if (!p) { int g = MUST(open("f", O_RDWR)); SHOW(lk(g, F_SETLK, F_WRLCK, 0, 5)); tell(0); hear(1); SHOW(lk(g, F_SETLK, F_UNLCK, 0, 2)); tell(0); hear(1); _exit(0); } hear(0);
    SHOW(lk(f, F_SETLK, F_WRLCK, 0, 1)); SHOW(lk(f, F_SETLK, F_RDLCK, 4, 1)); SHOW(lk(f, F_SETLK, F_WRLCK, 5, 5)); SHOW(holder(f, 0, 1) == p); SHOW(holder(f, 5, 1)); tell(1); hear(0); SHOW(lk(f, F_SETLK, F_WRLCK, 0, 2)); SHOW(lk(f, F_SETLK, F_WRLCK, 2, 1)); tell(1); SHOW(ended(p)); SHOW(lk(f, F_SETLKW, F_WRLCK, 0, 0));
    // Waits for a holder that is killed.
    lk(f, F_SETLK, F_UNLCK, 0, 0); p = fork(); if (!p) { int g = MUST(open("f", O_RDWR)); MUST(lk(g, F_SETLK, F_WRLCK, 0, 0)); tell(0); for (;;) pause(); } hear(0); SHOW(lk(f, F_SETLK, F_WRLCK, 0, 0)); kill(p, SIGKILL); SHOW(lk(f, F_SETLKW, F_WRLCK, 0, 0)); SHOW(ended(p)); lk(f, F_SETLK, F_UNLCK, 0, 0);
    // A signal ends the wait.
    p = fork(); if (!p) { int g = MUST(open("f", O_RDWR)); MUST(lk(g, F_SETLK, F_WRLCK, 0, 0)); MUST(flock(g, LOCK_EX)); tell(0); hear(1); _exit(0); } hear(0); struct sigaction sa = {.sa_handler = on_alarm}; sigaction(SIGALRM, &sa, NULL); ualarm(200000, 0); SHOW(lk(f, F_SETLKW, F_WRLCK, 0, 0)); ualarm(200000, 0); SHOW(flock(f, LOCK_EX)); SHOW(flock(f, LOCK_EX | LOCK_NB)); SHOW(flock(f, LOCK_SH | LOCK_NB)); tell(1); SHOW(flock(f, LOCK_EX)); SHOW(ended(p));
    // flock belongs to the open file: a duplicate holds it, another open file does not; a child shares it.
    int d = dup(f), g = MUST(open("f", O_RDWR)); SHOW(flock(g, LOCK_SH | LOCK_NB)); close(f); SHOW(flock(g, LOCK_SH | LOCK_NB)); SHOW(flock(d, LOCK_SH)); SHOW(flock(g, LOCK_SH | LOCK_NB)); p = fork(); if (!p) { SHOW(flock(d, LOCK_UN)); _exit(0); } SHOW(ended(p)); SHOW(flock(g, LOCK_EX | LOCK_NB)); close(g); close(d);
    // Closing any descriptor of the file drops the process's byte-range locks; open-file locks stay.
    f = MUST(open("f", O_RDWR)); g = MUST(open("f", O_RDWR)); SHOW(lk(f, F_SETLK, F_WRLCK, 0, 0)); SHOW(lk(g, F_SETLK, F_WRLCK, 0, 0)); close(g); p = fork(); if (!p) { int h = MUST(open("f", O_RDWR)); SHOW(lk(h, F_SETLK, F_WRLCK, 0, 0)); _exit(0); } SHOW(ended(p)); SHOW(lk(f, F_OFD_SETLK, F_WRLCK, 0, 4)); g = MUST(open("f", O_RDWR)); SHOW(lk(g, F_OFD_SETLK, F_WRLCK, 0, 1)); SHOW(lk(g, F_OFD_SETLK, F_RDLCK, 4, 1)); close(f); SHOW(lk(g, F_OFD_SETLK, F_WRLCK, 0, 1)); close(g);
    // What an open file had locked is free as soon as its last descriptor is closed.
    for (int i = 0, ofd = 0, whole = 0; i <= 200; i++) { if (i == 200) { SHOW(ofd); SHOW(whole); break; } f = MUST(open("f", O_RDWR)); g = MUST(open("f", O_RDWR)); d = dup(f); MUST(lk(f, F_OFD_SETLK, F_WRLCK, 0, 4)); MUST(flock(f, LOCK_EX)); close(f); close(d); ofd += lk(g, F_OFD_SETLK, F_WRLCK, 0, 4) == 0; whole += flock(g, LOCK_EX | LOCK_NB) == 0; close(g); }
    // Threads of one process never wait for each other, and whoever closes a descriptor takes all locks.
    pthread_t t[8]; for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, locker, NULL); for (int i = 0; i < 8; i++) pthread_join(t[i], NULL); SHOW(locked);
    // lockf, and a counter that four processes raise.
    f = MUST(open("f", O_RDWR)); SHOW(lockf(f, F_LOCK, 4)); p = fork(); if (!p) { int h = MUST(open("f", O_RDWR)); SHOW(lockf(h, F_TEST, 4)); SHOW(lockf(h, F_TLOCK, 4)); lseek(h, 4, SEEK_SET); SHOW(lockf(h, F_TLOCK, 4)); _exit(0); } SHOW(ended(p)); SHOW(lockf(f, F_ULOCK, 4)); int r = MUST(open("f", O_RDONLY)); SHOW(lk(r, F_SETLK, F_WRLCK, 0, 1)); SHOW(lk(r, F_SETLK, F_RDLCK, 0, 1)); SHOW(lk(r, F_SETLK, 77, 0, 1)); put("n", "0"); for (int i = 0; i < 4; i++) if (!fork()) { for (int k = 0; k < 25; k++) { int c = MUST(open("n", O_RDWR)); if (i & 1) MUST(lk(c, F_SETLKW, F_WRLCK, 0, 0)); else MUST(lockf(c, F_LOCK, 0)); char b[16] = ""; MUST(pread(c, b, 15, 0)); snprintf(b, 16, "%d", atoi(b) + 1); MUST(pwrite(c, b, strlen(b), 0)); close(c); } _exit(0); } while (wait(NULL) > 0); cat("n");
    SHOW(system("flock -n f -c 'echo got it' || echo busy")); f = MUST(open("f", O_RDWR)); flock(f, LOCK_EX); SHOW(system("flock -n f -c 'echo got it' || echo busy") >> 8); p = fork(); if (!p) { execlp("sh", "sh", "-c", "flock -n f true || echo held over exec", NULL); } SHOW(ended(p)); close(f);
    return 0;
}
