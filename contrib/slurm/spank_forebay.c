/*
 * SPANK plugin: srun, sbatch and salloc take --forebay=DIR[=EXPORT][,io-nodes=N|auto][,via=preload].
 *
 * A batch job is registered on its first host when its script starts and released when that ends; a step outside of
 * one, by its srun: on the step's first host it would be released as soon as the tasks there have ended, while others
 * run. All tasks are forwarded. What that takes is done by the helper forebay-slurm, as the job's user; this file only
 * calls it. If it cannot be done the step fails: a job that asked for it never runs without it.
 *
 * plugstack.conf:
 *   required forebay.so helper=/usr/libexec/forebay/forebay-slurm arbiter=https://arb:7410 [program=…] [secret=…]
 *            [share=…] [wait=SECONDS]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(forebay, 1);

#define LONGEST 4096
#define VARIABLES 32
/* What a job has asked for. */
#define ASKED "SLURM_FOREBAY"
/* srun has found that it cannot be done. */
#define FAILED "SLURM_FOREBAY_FAILED"
/* What has been done for it: the name that the helper knows it by, a space, and what was asked for. */
#define DONE "SLURM_FOREBAY_DONE"

static char spec[LONGEST];
/* What the job has asked for whose step this is, or that has submitted this one. */
static char inherited[LONGEST];
static char helper[LONGEST] = "/usr/libexec/forebay/forebay-slurm";
/* What plugstack.conf says, as the helper's environment. */
static char settings[5][LONGEST];
static int patience = 60;
/* What this step asked for could not be done. */
static int failed;
/* What was begun here: by a batch script's host, or by srun. */
static char begun[128];
/* For the helper: the process whose end is the job's; of srun, the job, too. */
static char watched[64], owner[64];

static int chosen(int value, const char *text, int remote)
{
	(void)value;
	if (!text || !*text || strlen(text) >= sizeof(spec)) {
		slurm_error("forebay: say which directory: --forebay=/scratch");
		return -1;
	}
	for (const char *c = text; *c; c++)
		if (*c < ' ' || *c == 127) {
			slurm_error("forebay: --forebay has a character that none should have");
			return -1;
		}
	if (!remote && text[0] != '/') {
		slurm_error("forebay: --forebay=%s: a directory begins with /", text);
		return -1;
	}
	/* What was inherited is said first, as if it were an option of this command. */
	if (!remote && spec[0] && strcmp(spec, text) && strcmp(spec, inherited)) {
		slurm_error("forebay: --forebay=%s and --forebay=%s: one of them would not be done; give one", spec, text);
		return -1;
	}
	strcpy(spec, text);
	/* With --export=NONE or a list Slurm passes on what begins so, and not what was said of options. */
	if (!remote)
		setenv(ASKED, spec, 1);
	return 0;
}

/* Not a table named spank_options: sbatch and salloc do not look at that. */
static struct spank_option option = {
	"forebay", "DIR[,io-nodes=N|auto]",
	"forward what tasks do below DIR (or DIR=EXPORT) through I/O nodes: the arbiter's, or N on hosts of the job", 1, 0,
	(spank_opt_cb_f)chosen};

int slurm_spank_init(spank_t sp, int argc, char *argv[])
{
	static const struct {
		const char *name, *variable;
	} known[] = {{"arbiter=", "FOREBAY_ARBITER="},
		     {"program=", "FOREBAY_PROGRAM="},
		     {"secret=", "FOREBAY_SECRET_FILE="},
		     {"share=", "FOREBAY_SHARE="},
		     {"wait=", "FOREBAY_SLURM_WAIT="}};
	for (int i = 0; i < argc; i++) {
		size_t k, n = sizeof(known) / sizeof(known[0]);
		if (strlen(argv[i]) >= LONGEST - 32) {
			slurm_error("forebay: plugstack.conf: an argument is too long");
			return -1;
		}
		if (!strncmp(argv[i], "helper=", 7)) {
			strcpy(helper, argv[i] + 7);
			continue;
		}
		for (k = 0; k < n && strncmp(argv[i], known[k].name, strlen(known[k].name)); k++)
			;
		if (k == n) {
			slurm_error("forebay: plugstack.conf: %s is not understood", argv[i]);
			return -1;
		}
		snprintf(settings[k], LONGEST, "%s%s", known[k].variable, argv[i] + strlen(known[k].name));
		if (k == 4)
			patience = atoi(argv[i] + 5);
	}
	if (getenv(ASKED))
		snprintf(inherited, sizeof(inherited), "%s", getenv(ASKED));
	if (patience < 1 || patience > 3600)
		patience = 60;
	if (spank_option_register(sp, &option) != ESPANK_SUCCESS) {
		slurm_error("forebay: the option --forebay cannot be had");
		return -1;
	}
	return 0;
}

static long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000L + t.tv_nsec / 1000000;
}

/* The child becomes the job's user for good, and the helper. */
static void become(spank_t sp, uid_t uid, gid_t gid, char *const argv[])
{
	/* SLURM_NODELIST: srun itself has no SLURM_JOB_NODELIST where it stands alone. */
	static const char *const passed[] = {"HOME", "USER", "LOGNAME", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES",
					     "SLURM_NNODES", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE", "SLURM_JOB_NAME", "SLURM_JOB_USER",
					     "SLURM_JOB_ACCOUNT", "SLURM_RESTART_COUNT", "SLURM_CONF", "FOREBAY_MUNGE_SOCKET",
					     "FOREBAY_ARBITER_USER", "FOREBAY_CA"};
	static char room[sizeof(passed) / sizeof(passed[0])][LONGEST];
	char *env[VARIABLES];
	int n = 0;
	env[n++] = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		char value[LONGEST - 64];
		if (!spank_remote(sp) || spank_getenv(sp, passed[i], value, sizeof(value)) != ESPANK_SUCCESS) {
			/* srun's own are the user's; of slurmd's: where its configuration is. */
			const char *own = getenv(passed[i]);
			if (!own || (spank_remote(sp) && strcmp(passed[i], "SLURM_CONF")))
				continue;
			snprintf(value, sizeof(value), "%s", own);
		}
		snprintf(room[i], LONGEST, "%s=%s", passed[i], value);
		env[n++] = room[i];
	}
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
		if (settings[i][0])
			env[n++] = settings[i];
	if (watched[0])
		env[n++] = watched;
	if (owner[0])
		env[n++] = owner;
	env[n] = NULL;
	/* user_init has changed the effective ids only; the groups are the user's then. */
	if (geteuid() != uid && geteuid() == 0 && setgroups(1, &gid))
		_exit(126);
	if ((getuid() == 0 && seteuid(0)) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid))
		_exit(126);
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	/* slurmstepd blocks signals, and ignores some. */
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int n = 1; n < 32; n++)
		signal(n, SIG_DFL);
	if (chdir("/"))
		_exit(126);
	execve(argv[0], argv, env);
	_exit(127);
}

/* Runs the helper; what it prints goes into the step's environment. Its exit status, 0 if it went well. */
static int call(spank_t sp, char *const argv[], int limit_s)
{
	int out[2], status = -1, taken = 0;
	char text[LONGEST * 2];
	long until = now_ms() + limit_s * 1000L;
	uid_t uid;
	gid_t gid;
	pid_t child;

	if (!spank_remote(sp)) {
		uid = getuid();
		gid = getgid();
	} else if (spank_get_item(sp, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
		   spank_get_item(sp, S_JOB_GID, &gid) != ESPANK_SUCCESS) {
		slurm_error("forebay: whose job this is, is not known");
		return -1;
	}
	if (pipe(out))
		return -1;
	child = fork();
	if (child < 0) {
		close(out[0]);
		close(out[1]);
		return -1;
	}
	if (child == 0) {
		dup2(out[1], 1);
		become(sp, uid, gid, argv);
	}
	close(out[1]);
	for (;;) {
		struct pollfd p = {out[0], POLLIN, 0};
		long left = until - now_ms();
		ssize_t n;
		if (left <= 0) {
			slurm_error("forebay: %s took longer than %d s", helper, limit_s);
			kill(child, SIGKILL);
			break;
		}
		if (poll(&p, 1, left > 1000 ? 1000 : (int)left) <= 0)
			continue;
		n = read(out[0], text + taken, sizeof(text) - 1 - taken);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		taken += n;
		if (taken == (int)sizeof(text) - 1)
			break;
	}
	close(out[0]);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	text[taken] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *value = strchr(line, '=');
		if (!value)
			continue;
		*value++ = 0;
		if (spank_remote(sp) && spank_setenv(sp, line, value, 1) != ESPANK_SUCCESS)
			return -1;
	}
	return 0;
}

static void batch_name(spank_t sp, char *to, size_t size, uint32_t job)
{
	uint32_t restart = 0;
	if (spank_get_item(sp, S_SLURM_RESTART_COUNT, &restart) != ESPANK_SUCCESS)
		restart = 0;
	snprintf(to, size, "%u-%u", job, restart);
}

/* What the helper knows a job, or a step of its own, by. 0 if `step` is neither. */
static int name(spank_t sp, char *to, size_t size, uint32_t *job, uint32_t *step)
{
	if (spank_get_item(sp, S_JOB_ID, job) != ESPANK_SUCCESS || spank_get_item(sp, S_JOB_STEPID, step) != ESPANK_SUCCESS)
		return -1;
	if (*step == SLURM_EXTERN_CONT || *step == SLURM_INTERACTIVE_STEP)
		return 0;
	if (*step != SLURM_BATCH_SCRIPT) {
		snprintf(to, size, "%u.%u", *job, *step);
		return 1;
	}
	batch_name(sp, to, size, *job);
	return 1;
}

/* A variable of the step, or of srun. */
static void variable(spank_t sp, const char *name, char *to, size_t size)
{
	to[0] = 0;
	if (spank_remote(sp)) {
		if (spank_getenv(sp, name, to, size) != ESPANK_SUCCESS)
			to[0] = 0;
	} else if (getenv(name)) {
		snprintf(to, size, "%s", getenv(name));
	}
}

/* Whether the step has what it asks for, of its job: 1, or 0. -1: of the job, or of `forebay run`, it has something else. */
static int had(spank_t sp, uint32_t job)
{
	static char config[LONGEST], done[LONGEST + 64];
	char number[16];
	variable(sp, "FOREBAY_CONFIG", config, sizeof(config));
	variable(sp, DONE, done, sizeof(done));
	if (!config[0])
		return 0;
	snprintf(number, sizeof(number), "%u", job);
	char *argv[] = {helper, "had", number, spec, config, done, NULL};
	int status = call(sp, argv, 20);
	return status == 0 ? 1 : status == 1 ? 0 : -1;
}

static void say_undone(uint32_t job)
{
	slurm_error("forebay: job %u: --forebay=%s could not be done, so its tasks are not started", job, spec);
}

/* In srun, when the step is made and before its tasks are. */
int slurm_spank_local_user_init(spank_t sp, int argc, char *argv[])
{
	uint32_t job = 0, step = 0;
	int is;
	(void)argc;
	(void)argv;

	if (!spec[0])
		return 0;
	is = name(sp, begun, sizeof(begun), &job, &step);
	if (is <= 0) {
		begun[0] = 0;
		return is;
	}
	/* A step of a job that is forwarded already has what it needs. */
	int has = had(sp, job);
	if (has == 1) {
		begun[0] = 0;
		return 0;
	}
	snprintf(watched, sizeof(watched), "FOREBAY_SLURM_WATCH=%d", (int)getpid());
	snprintf(owner, sizeof(owner), "SLURM_JOB_ID=%u", job);
	char *call_argv[] = {helper, "start", begun, "0", spec, NULL};
	if (has < 0 || call(sp, call_argv, patience + 10)) {
		say_undone(job);
		begun[0] = 0;
		setenv(FAILED, "1", 1);
		return -1;
	}
	return 0;
}

/* On every host of a step, before its tasks. */
int slurm_spank_user_init(spank_t sp, int argc, char *argv[])
{
	uint32_t job = 0, step = 0;
	char text[64], key[sizeof(begun)], batch[sizeof(begun)];
	int is;
	(void)argc;
	(void)argv;

	if (!spank_remote(sp))
		return 0;
	if (!spec[0] && (spank_getenv(sp, ASKED, spec, sizeof(spec)) != ESPANK_SUCCESS || !spec[0]))
		return 0;
	is = name(sp, key, sizeof(key), &job, &step);
	if (is <= 0)
		return is;
	/* A step of a job that is forwarded has what it needs; a batch job that another one has submitted, only what was
	 * that one's. */
	int has = step == SLURM_BATCH_SCRIPT ? 0 : had(sp, job);
	if (has == 1)
		return 0;
	batch_name(sp, batch, sizeof(batch), job);
	if (step == SLURM_BATCH_SCRIPT) {
		strcpy(begun, key);
		/* If this process is killed nobody else will release the job. */
		snprintf(watched, sizeof(watched), "FOREBAY_SLURM_WATCH=%d", (int)getpid());
	}
	char *call_argv[] = {helper, "start", key, step == SLURM_BATCH_SCRIPT ? "0" : "1", spec, batch, NULL};
	if (has < 0 || spank_getenv(sp, FAILED, text, sizeof(text)) == ESPANK_SUCCESS || call(sp, call_argv, patience + 10)) {
		say_undone(job);
		failed = 1;
	}
	return 0;
}

/* In each task, right before it becomes the program. A failure above would take the host out of service, whosever
 * mistake it was. */
int slurm_spank_task_init(spank_t sp, int argc, char *argv[])
{
	(void)sp;
	(void)argc;
	(void)argv;
	if (failed) {
		fprintf(stderr, "forebay: --forebay=%s could not be done (Slurm's log of the host says why), so the task is not started\n", spec);
		_exit(1);
	}
	return 0;
}

static int release(spank_t sp)
{
	if (!begun[0])
		return 0;
	char *call_argv[] = {helper, "stop", begun, NULL};
	if (call(sp, call_argv, 20))
		slurm_error("forebay: %s could not be released: its lease will run out", begun);
	begun[0] = 0;
	return 0;
}

/* The batch script has ended: before Slurm kills whatever is left of the job. */
int slurm_spank_task_exit(spank_t sp, int argc, char *argv[])
{
	uint32_t step = 0;
	(void)argc;
	(void)argv;
	if (spank_get_item(sp, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step != SLURM_BATCH_SCRIPT)
		return 0;
	return release(sp);
}

/* The batch script, or srun with all its tasks, has ended, whatever became of it. */
int slurm_spank_exit(spank_t sp, int argc, char *argv[])
{
	(void)argc;
	(void)argv;
	return release(sp);
}
