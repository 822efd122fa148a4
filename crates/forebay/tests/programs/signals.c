// A handler that writes, whatever it interrupts: malloc, open, another write.
#include "t.h"
#include <sys/time.h>
#include <sys/uio.h>
static int logfile; static volatile long ticks, failed; static volatile sig_atomic_t on = 1;
static void tick(int sig) { int e = errno; char line[16] = "tick-tick-tick\n"; struct iovec v = {line, 15}; if (on && (ticks & 1 ? write(logfile, line, 15) : writev(logfile, &v, 1)) != 15) failed++; ticks++; errno = e; }
int main(void) {
    logfile = MUST(open("log", O_WRONLY | O_CREAT | O_APPEND, 0644));
    struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART}; sigaction(SIGALRM, &a, NULL);
    struct itimerval t = {{0, 300}, {0, 300}}; setitimer(ITIMER_REAL, &t, NULL);
    char name[64]; void *kept[64] = {0}; long bad = 0;
    int same = MUST(open("same", O_RDWR | O_CREAT, 0644));
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "n%d", i % 7); int f = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644); if (f < 0 || write(f, "x", 1) != 1 || close(f)) bad++;
        free(kept[i % 64]); kept[i % 64] = malloc(1 + (i * 7919) % 5000); struct stat s; if (stat(name, &s)) bad++; if (i % 50 == 0) { DIR *d = opendir("."); while (readdir(d)); closedir(d); }
    }
    on = 0; setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    struct stat s; MUST(fstat(logfile, &s)); printf("%ld %ld %d %d\n", bad, failed, s.st_size % 15 == 0, ticks > 10);
    // The handler moves the same file's offset as the interrupted call.
    logfile = same; on = 1; ticks = 0; setitimer(ITIMER_REAL, &t, NULL); for (int i = 0; i < 2000; i++) if (write(same, "main-main-main\n", 15) != 15) bad++; on = 0; setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    MUST(fstat(same, &s)); printf("%ld %ld %d %d\n", bad, failed, s.st_size % 15 == 0 && s.st_size >= 2000 * 15, lseek(same, 0, SEEK_CUR) == s.st_size);
}
