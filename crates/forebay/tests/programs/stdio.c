// C stdio in all its forms.
#include "t.h"
int main(void) {
    char line[256]; FILE *f = fopen("a", "w"); fprintf(f, "%d %s\n", 1, "one"); fputs("two\n", f); fputc('3', f); fwrite("\n4\n", 1, 3, f); SHOW(ftell(f)); SHOW(fclose(f));
    f = fopen("a", "r"); fgets(line, sizeof line, f); printf("%s", line); int c = fgetc(f); ungetc(c, f); ungetc('X', f); printf("%c%c\n", fgetc(f), fgetc(f)); SHOW(fseek(f, -2, SEEK_END)); printf("%c\n", fgetc(f)); rewind(f); int n; char w[20]; SHOW(fscanf(f, "%d %19s", &n, w)); printf("%d %s\n", n, w); fclose(f);
    f = fopen("a", "r+"); fseek(f, 2, SEEK_SET); fputs("ONE", f); fflush(f); fseek(f, 0, SEEK_SET); fgets(line, sizeof line, f); printf("%s", line); SHOW(fileno(f) >= 0); SHOW(ftruncate(fileno(f), 8)); fclose(f); cat("a");
    f = fopen("a", "a+"); fputs("app", f); fseek(f, 0, SEEK_SET); fread(line, 1, 3, f); fputs("end\n", f); SHOW(ftell(f)); fclose(f); cat("a");
    f = fopen("x", "wx"); SHOW(f != NULL); fclose(f); f = fopen("x", "wx"); printf("%s\n", f ? "?" : strerrorname_np(errno)); f = fopen("e", "we"); SHOW(fcntl(fileno(f), F_GETFD)); fclose(f);
    f = fopen("fr1", "w"); fputs("first", f); f = freopen("fr2", "w", f); fputs("second", f); fclose(f); cat("fr1"); cat("fr2");
    int fd = open("fd", O_RDWR | O_CREAT, 0600); f = fdopen(fd, "w+"); fputs("by fdopen", f); fseek(f, 3, SEEK_SET); printf("%s\n", fgets(line, sizeof line, f)); fclose(f);
    f = fopen("buf", "w"); static char big[100000]; setvbuf(f, big, _IOFBF, sizeof big); for (int i = 0; i < 20000; i++) fprintf(f, "%d\n", i); SHOW(ftello(f)); fclose(f); f = fopen("unbuf", "w"); setvbuf(f, NULL, _IONBF, 0); fputs("now", f); cat("unbuf"); fclose(f);
    f = fopen("buf", "r"); long sum = 0; while (fgets(line, sizeof line, f)) sum += atoi(line); printf("%ld\n", sum); SHOW(feof(f) != 0); fpos_t p; rewind(f); fgets(line, 9, f); fgetpos(f, &p); fgets(line, 9, f); fsetpos(f, &p); printf("%s", fgets(line, 9, f)); char *l = NULL; size_t cap = 0; SHOW(getline(&l, &cap, f)); SHOW(getdelim(&l, &cap, '7', f)); fclose(f);
    f = tmpfile(); fputs("temporary", f); rewind(f); printf("%s\n", fgets(line, sizeof line, f)); fclose(f); char t[] = "tmpXXXXXX"; fd = mkstemp(t); SHOW(fd >= 0); SHOW(write(fd, "x", 1)); close(fd); unlink(t); char d[] = "dirXXXXXX"; printf("%s\n", mkdtemp(d) ? "made" : "no"); rmdir(d);
    f = popen("cat a; echo popen", "r"); while (fgets(line, sizeof line, f)) printf("%s", line); SHOW(pclose(f)); f = popen("cat > piped", "w"); fputs("to a pipe", f); pclose(f); cat("piped"); SHOW(system("echo sys > sys; exit 3") >> 8);
    f = fopen("wide", "w"); fwide(f, 1); fprintf(f, "x"); fclose(f); f = fopen("a", "r"); SHOW(fputc('x', f)); SHOW(ferror(f) != 0); clearerr(f); fclose(f); SHOW(remove("x")); SHOW(rename("wide", "narrow")); f = fopen("nothere/x", "w"); SHOW(f == NULL); f = fopen(".", "w"); printf("%s\n", strerrorname_np(errno)); f = fopen("mm", "w"); fputs("mapped", f); fclose(f); f = fopen("mm", "rm"); printf("%s\n", fgets(line, 20, f)); fclose(f);
    char *mem; size_t ms; f = open_memstream(&mem, &ms); fputs("mem", f); fclose(f); puts(mem); put("in", "stdin line\nsecond\n"); freopen("in", "r", stdin); gets: if (scanf("%255[^\n]%*c", line) == 1) puts(line); (void)&&gets;
    dprintf(1, "%s", ""); fflush(stdout); freopen("out", "w", stdout); printf("redirected\n"); fflush(stdout); SHOW(system("echo child into the same")); dup2(2, 1); fputs("leaves the last lines to exit", fopen("atexit", "w"));
    return 5;
}
