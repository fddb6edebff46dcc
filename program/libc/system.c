/* What newlib asks a system for: the console, memory, time. There are no files, processes and signals.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "libc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull

static int fail(int error)
{
    errno = error;
    return -1;
}

static bool console(int file)
{
    return file >= 0 && file <= 2;
}

_READ_WRITE_RETURN_TYPE _write(int file, const void *from, size_t length)
{
    if (file != 1 && file != 2)
        return fail(EBADF);
    bulkhead_write(from, length);
    return (_READ_WRITE_RETURN_TYPE)length;
}

/* There is no input: it ends at once. */
_READ_WRITE_RETURN_TYPE _read(int file, void *to, size_t length)
{
    (void)to, (void)length;
    return file ? fail(EBADF) : 0;
}

int _open(const char *path, int flags, ...)
{
    (void)path;
    return fail(flags & O_CREAT ? ENOSYS : ENOENT);
}

int _close(int file)
{
    return console(file) ? 0 : fail(EBADF);
}

int _isatty(int file)
{
    return console(file) ? 1 : fail(EBADF);
}

int _fstat(int file, struct stat *to)
{
    if (!console(file))
        return fail(EBADF);
    memset(to, 0, sizeof *to);
    to->st_mode = S_IFCHR | 0600;
    return 0;
}

int _stat(const char *path, struct stat *to)
{
    (void)path, (void)to;
    return fail(ENOENT);
}

off_t _lseek(int file, off_t offset, int whence)
{
    (void)offset, (void)whence;
    return fail(console(file) ? ESPIPE : EBADF);
}

int _unlink(const char *path)
{
    (void)path;
    return fail(ENOENT);
}

int _link(const char *from, const char *to)
{
    (void)from, (void)to;
    return fail(ENOENT);
}

int _rename(const char *from, const char *to)
{
    (void)from, (void)to;
    return fail(ENOENT);
}

int mkdir(const char *path, mode_t mode)
{
    (void)path, (void)mode;
    return fail(ENOSYS);
}

int rmdir(const char *path)
{
    (void)path;
    return fail(ENOENT);
}

int access(const char *path, int mode)
{
    (void)path, (void)mode;
    return fail(ENOENT);
}

char *getcwd(char *to, size_t length)
{
    if (!to || length < 2) {
        errno = to ? ERANGE : EINVAL;
        return NULL;
    }
    return strcpy(to, "/");
}

int _getpid(void)
{
    return 1;
}

/* A signal that a program sends itself, as abort does, ends it. */
int _kill(int process, int signal)
{
    if (process != 1)
        return fail(ESRCH);
    /* Asks only if there is such a process. */
    if (!signal)
        return 0;
    bulkhead_printf("%s: ended by signal %d\n", bulkhead_page()->name, signal);
    _exit(128 + signal);
}

int _execve(const char *path, char *const *arguments, char *const *environment)
{
    (void)path, (void)arguments, (void)environment;
    return fail(ENOSYS);
}

int _fork(void)
{
    return fail(ENOSYS);
}

int _wait(int *status)
{
    (void)status;
    return fail(ECHILD);
}

/* newlib's malloc calls this with its lock held. */
void *_sbrk(ptrdiff_t more)
{
    static uint64_t used;
    const struct bulkhead_page *page = bulkhead_page();
    if (more > 0 ? (uint64_t)more > page->heap_len - used : (uint64_t)-more > used) {
        errno = ENOMEM;
        return (void *)-1;
    }
    void *at = (char *)page->heap + used;
    used += (uint64_t)more;
    return at;
}

/* Time. The clock of dates begins at 0 with the processor, until the program sets it. */

static _Atomic uint64_t date;

static uint64_t nanos(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * SECOND + (uint64_t)time->tv_nsec;
}

static bool valid(const struct timespec *time)
{
    /* Seconds of 500 years, of which the nanoseconds fit into a word. */
    return time->tv_sec >= 0 && time->tv_sec < (1ll << 34) && time->tv_nsec >= 0 && time->tv_nsec < (long)SECOND;
}

static void set(struct timespec *to, uint64_t time)
{
    to->tv_sec = (time_t)(time / SECOND);
    to->tv_nsec = (long)(time % SECOND);
}

uint64_t libc_until(clockid_t clock, const struct timespec *time)
{
    /* Before all time, and after it. */
    if (time->tv_sec < 0 || time->tv_sec >= 1ll << 34)
        return time->tv_sec < 0 ? 0 : BULKHEAD_FOREVER;
    uint64_t at = nanos(time);
    if (clock != CLOCK_REALTIME)
        return at;
    return at > date ? at - date : 0;
}

int clock_gettime(clockid_t clock, struct timespec *to)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return fail(EINVAL);
    set(to, bulkhead_now() + (clock == CLOCK_REALTIME ? date : 0));
    return 0;
}

int clock_settime(clockid_t clock, const struct timespec *time)
{
    uint64_t now = bulkhead_now();
    if (clock != CLOCK_REALTIME || !valid(time) || nanos(time) < now)
        return fail(EINVAL);
    date = nanos(time) - now;
    return 0;
}

int clock_getres(clockid_t clock, struct timespec *to)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return fail(EINVAL);
    if (to)
        set(to, 1);
    return 0;
}

int _gettimeofday(struct timeval *to, void *zone)
{
    (void)zone;
    uint64_t micros = (bulkhead_now() + date) / 1000;
    to->tv_sec = (time_t)(micros / 1000000);
    to->tv_usec = (suseconds_t)(micros % 1000000);
    return 0;
}

/* The processor's time of a program is not known to it: this is the time since the processor's start. */
clock_t clock(void)
{
    return (clock_t)(bulkhead_now() / (SECOND / CLOCKS_PER_SEC));
}

clock_t _times(struct tms *to)
{
    clock_t now = clock();
    *to = (struct tms){.tms_utime = now};
    return now;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    if ((clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC) || !valid(time))
        return EINVAL;
    uint64_t until = flags & TIMER_ABSTIME ? libc_until(clock, time) : bulkhead_now() + nanos(time);
    /* A thread that wakes it for another reason does not end it. */
    while (libc_park(until))
        ;
    if (left)
        set(left, 0);
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    int error = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
    return error ? fail(error) : 0;
}

int usleep(useconds_t micros)
{
    struct timespec time = {.tv_sec = (time_t)(micros / 1000000), .tv_nsec = (long)(micros % 1000000) * 1000};
    return nanosleep(&time, NULL);
}

unsigned sleep(unsigned seconds)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds}, NULL);
    return 0;
}

/* The names of POSIX, too: newlib is built to use either, and programs call them without stdio. */
#define ALIAS(type, name, ...) type name(__VA_ARGS__) __attribute__((alias("_" #name)))
ALIAS(_READ_WRITE_RETURN_TYPE, write, int, const void *, size_t);
ALIAS(_READ_WRITE_RETURN_TYPE, read, int, void *, size_t);
ALIAS(int, open, const char *, int, ...);
ALIAS(int, close, int);
ALIAS(int, isatty, int);
ALIAS(int, fstat, int, struct stat *);
ALIAS(int, stat, const char *, struct stat *);
ALIAS(off_t, lseek, int, off_t, int);
ALIAS(int, unlink, const char *);
ALIAS(pid_t, getpid, void);
ALIAS(int, kill, int, int);
ALIAS(int, link, const char *, const char *);
ALIAS(int, rename, const char *, const char *);
ALIAS(int, execve, const char *, char *const *, char *const *);
ALIAS(int, fork, void);
ALIAS(int, wait, int *);
ALIAS(void *, sbrk, ptrdiff_t);
ALIAS(int, gettimeofday, struct timeval *, void *);
ALIAS(clock_t, times, struct tms *);
