// Descriptors that are shared, inherited, duplicated and closed: fork, vfork, posix_spawn, exec.
#include "t.h"
#include <pthread.h>
#include <spawn.h>
extern char **environ;
static void *writer(void *a) { long i = (long)a; int f = MUST(open("threads", O_WRONLY | O_CREAT, 0644)); for (int k = 0; k < 200; k++) { char b[16]; memset(b, 'a' + i, 16); MUST(pwrite(f, b, 16, (k * 8 + i) * 16)); } MUST(close(f)); return NULL; }
static int shared; static void *appender(void *a) { for (int k = 0; k < 100; k++) MUST(write(shared, "0123456789\n", 11)); return a; }
int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "child")) { char b[8]; long n = read(3, b, 4); printf("child read %.*s\n", (int)n, b); SHOW(write(4, "child\n", 6)); SHOW(fcntl(5, F_GETFD)); SHOW(lseek(3, 0, SEEK_CUR)); return 9; }
    // An offset is shared with a forked child.
    int f = MUST(open("fork", O_RDWR | O_CREAT | O_TRUNC, 0644)); MUST(write(f, "parent ", 7));
    pid_t p = fork(); if (!p) { MUST(write(f, "child ", 6)); _exit(3); } SHOW(ended(p)); SHOW(lseek(f, 0, SEEK_CUR)); MUST(write(f, "again", 5)); MUST(close(f)); cat("fork");
    f = MUST(open("many", O_WRONLY | O_CREAT, 0644)); for (int i = 0; i < 4; i++) if (!fork()) { for (int k = 0; k < 50; k++) MUST(write(f, "12345678\n", 9)); _exit(0); } while (wait(NULL) > 0); SHOW(lseek(f, 0, SEEK_CUR)); close(f);
    f = MUST(open("appends", O_WRONLY | O_CREAT | O_APPEND, 0644)); for (int i = 0; i < 4; i++) if (!fork()) { for (int k = 0; k < 50; k++) MUST(write(f, "append\n", 7)); _exit(0); } while (wait(NULL) > 0); close(f);
    // The child goes on after the parent has closed and removed the file.
    f = MUST(open("late", O_RDWR | O_CREAT, 0644)); MUST(write(f, "late data", 9)); int go[2]; MUST(pipe(go)); p = fork(); if (!p) { char b[10] = ""; MUST(read(go[0], b, 1)); MUST(pread(f, b, 9, 0)); _exit(strcmp(b, "late data") ? 1 : 0); } close(f); unlink("late"); MUST(write(go[1], "x", 1)); SHOW(ended(p)); close(go[0]); close(go[1]);
    // exec: one descriptor to read, one to write, one closed on exec.
    put("input", "abcdefgh"); int in = MUST(open("input", O_RDONLY)), out = MUST(open("output", O_WRONLY | O_CREAT | O_TRUNC, 0644)), ce = MUST(open("input", O_RDONLY | O_CLOEXEC)); MUST(lseek(in, 2, SEEK_SET)); char *child[] = {argv[0], "child", NULL};
    p = fork(); if (!p) { int a = dup(in), b = dup(out), c = fcntl(ce, F_DUPFD_CLOEXEC, 20); dup2(a, 3); dup2(b, 4); dup3(c, 5, O_CLOEXEC); execv(argv[0], child); _exit(1); } SHOW(ended(p)); SHOW(lseek(in, 0, SEEK_CUR)); cat("output");
    p = vfork(); if (!p) { dup2(in, 3); dup2(out, 4); close(5); execv(argv[0], child); _exit(1); } SHOW(ended(p)); SHOW(lseek(in, 0, SEEK_CUR)); SHOW(write(out, "still\n", 6)); cat("output");
    // posix_spawn with actions, files opened by the child among them.
    posix_spawn_file_actions_t a; posix_spawn_file_actions_init(&a); posix_spawn_file_actions_addopen(&a, 0, "input", O_RDONLY, 0); posix_spawn_file_actions_addopen(&a, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0640); posix_spawn_file_actions_adddup2(&a, 1, 2); char *cats[] = {"cat", "-", "nothere", NULL}; errno = posix_spawnp(&p, "cat", &a, NULL, cats, environ); SHOW(errno ? -1 : 0); SHOW(ended(p)); posix_spawn_file_actions_destroy(&a); system("wc -l < spawned; stat -c %a spawned");
    posix_spawn_file_actions_init(&a); posix_spawn_file_actions_adddup2(&a, out, 1); posix_spawn_file_actions_addclose(&a, in); char *echo[] = {"echo", "spawn dup2", NULL}; errno = posix_spawn(&p, "/bin/echo", &a, NULL, echo, environ); SHOW(ended(p)); posix_spawn_file_actions_destroy(&a); cat("output");
    mkdir("wd", 0755); posix_spawn_file_actions_init(&a); posix_spawn_file_actions_addchdir_np(&a, "wd"); posix_spawn_file_actions_addopen(&a, 1, "inwd", O_WRONLY | O_CREAT, 0644); char *pwd[] = {"sh", "-c", "basename $(pwd); echo here > rel", NULL}; errno = posix_spawnp(&p, "sh", &a, NULL, pwd, environ); SHOW(errno ? -1 : 0); SHOW(ended(p)); cat("wd/inwd"); cat("wd/rel"); posix_spawn_file_actions_destroy(&a);
    posix_spawn_file_actions_init(&a); posix_spawn_file_actions_addopen(&a, 1, "no/such/dir", O_WRONLY | O_CREAT, 0644); SHOW(posix_spawnp(&p, "true", &a, NULL, echo, environ)); posix_spawn_file_actions_destroy(&a); SHOW(posix_spawn(&p, "./nothere", NULL, NULL, echo, environ));
    // Programs that close everything they do not know.
    p = fork(); if (!p) { for (int i = 3; i < 1024; i++) close(i); cat("input"); fflush(stdout); _exit(0); } SHOW(ended(p)); p = fork(); if (!p) { closefrom(3); cat("input"); put("closed", "from"); fflush(stdout); _exit(0); } SHOW(ended(p)); p = fork(); if (!p) { close_range(3, ~0U, 0); cat("input"); execlp("cat", "cat", "closed", NULL); _exit(1); } SHOW(ended(p)); p = fork(); if (!p) { close_range(3, ~0U, CLOSE_RANGE_CLOEXEC); MUST(pwrite(out, "C", 1, 0)); execlp("cat", "cat", "output", NULL); } SHOW(ended(p));
    for (int i = 3; i < 1024; i++) close(i); cat("input"); f = MUST(open("input", O_RDONLY)); SHOW(f); int g = MUST(dup2(f, 700)); SHOW(g); int h = MUST(dup2(f, 900)); char b[4]; MUST(read(h, b, 2)); MUST(read(g, b + 2, 2)); printf("%.4s\n", b); for (int i = 3; i < 1024; i++) close(i);
    // Threads: each its own descriptor, and all the same one.
    pthread_t t[8]; for (long i = 0; i < 8; i++) pthread_create(&t[i], NULL, writer, (void *)i); for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    shared = MUST(open("one", O_WRONLY | O_CREAT, 0644)); for (long i = 0; i < 4; i++) pthread_create(&t[i], NULL, appender, NULL); p = fork(); if (!p) { put("from-threads", "forked while threads write"); _exit(0); } SHOW(ended(p)); for (int i = 0; i < 4; i++) pthread_join(t[i], NULL); SHOW(lseek(shared, 0, SEEK_CUR)); close(shared);
    // The lowest free number is given; flags are the program's own.
    int x = MUST(open("input", O_RDONLY)), y = MUST(open("output", O_RDWR | O_APPEND)); SHOW(x); SHOW(y); close(x); SHOW(open("input", O_RDONLY)); SHOW(fcntl(y, F_GETFL) & (O_ACCMODE | O_APPEND)); SHOW(fcntl(y, F_SETFL, 0)); SHOW(fcntl(y, F_GETFL) & (O_ACCMODE | O_APPEND)); SHOW(dup2(y, y)); SHOW(dup2(99, 98)); SHOW(close(98)); SHOW(dup3(y, y, 0)); SHOW(fcntl(y, F_SETFD, FD_CLOEXEC)); SHOW(fcntl(y, F_GETFD)); SHOW(fcntl(y, F_DUPFD, 50)); SHOW(isatty(y)); SHOW(lseek(99, 0, 0));
    // Children that are not waited for before their parent ends.
    p = fork(); if (!p) { if (!fork()) { usleep(100000); put("orphan", "wrote"); _exit(0); } _exit(0); } ended(p); for (int i = 0; i < 100 && access("orphan", F_OK); i++) usleep(20000); usleep(50000); cat("orphan");
    return 0;
}
