/* Threads of POSIX. The kernel's threads are made at home: a thread of the manifest whose entry is `pthread` waits here
 * for a function, runs it, and waits again.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "libc.h"

#include <_newlib_version.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reent.h>

/* A thread's handle: its number from 1, and above it its life. */
#define LIFE 8

void libc_state(struct _reent *);
void libc_end_keys(void);
/* Prepares newlib's streams; there, if the program uses any. */
void __sinit(struct _reent *) __attribute__((weak));

static _Thread_local struct _reent own_state;

/* From program.ld: the initial bytes of the variables that each thread has of its own, and the room that all have. */
extern const char bulkhead_local_start[], bulkhead_local_bytes[], bulkhead_local_room[];

/* A thread's own variables are as at its first start again. They lie below the address in the thread pointer. */
static void renew(int thread)
{
    char *end = __builtin_thread_pointer();
    size_t bytes = (size_t)bulkhead_local_bytes, room = (size_t)bulkhead_local_room;
    memcpy(end - room, bulkhead_local_start, bytes);
    memset(end - room + bytes, 0, room - bytes);
    bulkhead_begin((uint64_t)thread);
}

static pthread_t handle(int thread)
{
    return (unsigned long)libc_threads[thread].life << LIFE | (unsigned long)(thread + 1);
}

/* The thread of a handle, or NULL: it has ended, and its life is over. */
static struct libc_thread *find(pthread_t handle_)
{
    int thread = (int)(handle_ & ((1 << LIFE) - 1)) - 1;
    if (thread < 0 || thread >= LIBC_THREADS || handle(thread) != handle_)
        return NULL;
    uint32_t state = libc_threads[thread].state;
    return state == LIBC_TAKEN || state == LIBC_RUNNING || state == LIBC_ENDED ? &libc_threads[thread] : NULL;
}

/* The thread is free for another function. Its handle means nothing from here on. */
static void release(struct libc_thread *thread)
{
    thread->life++;
    thread->state = LIBC_IDLE;
}

static void run(int thread)
{
    struct libc_thread *self = libc_threads + thread;
    renew(thread);
    _REENT_INIT_PTR(&own_state);
    libc_state(&own_state);
    /* `exit` writes out the first thread's streams, which that thread's own use of them makes otherwise. */
    if (__sinit)
        __sinit(_impure_ptr);
    self->state = LIBC_RUNNING;
    if (!setjmp(self->end))
        self->result = self->start(self->argument);
    libc_end_keys();
    /* Its streams are all threads' own. */
    own_state.__cleanup = NULL;
#if __NEWLIB__ < 4
    own_state.__sdidinit = 0;
#endif
    _reclaim_reent(&own_state);
    libc_state(NULL);
    self->state = LIBC_ENDED;
    if (atomic_exchange(&self->detached, 2) == 1)
        release(self);
    else if (self->joiner != LIBC_NOBODY)
        libc_wake(self->joiner);
}

static _Noreturn int pool(uint32_t number)
{
    int thread = (int)number;
    struct libc_thread *self = libc_threads + thread;
    libc_begin();
    uint32_t fresh = LIBC_NEW;
    atomic_compare_exchange_strong(&self->state, &fresh, LIBC_IDLE);
    for (;;) {
        while (self->state != LIBC_TAKEN)
            libc_park(BULKHEAD_FOREVER);
        run(thread);
    }
}
BULKHEAD_THREAD(pthread, pool)

/* Takes a thread that has nothing to do: first one that waits already. */
static int claim(void)
{
    int count = libc_count();
    for (uint32_t state = LIBC_IDLE;; state = LIBC_NEW) {
        for (int thread = 1; thread < count; thread++) {
            uint32_t seen = state;
            if (atomic_compare_exchange_strong(&libc_threads[thread].state, &seen, LIBC_CLAIMED))
                return thread;
        }
        if (state == LIBC_NEW)
            return LIBC_NOBODY;
    }
}

int pthread_create(pthread_t *to, const pthread_attr_t *attr, void *(*start)(void *), void *argument)
{
    /* Threads that look again and again would keep less important ones from running. */
    if (!libc_threads[libc_self()].wakes) {
        bulkhead_printf("%s: pthread_create: the manifest gives it no `memory`, where its threads could wait\n",
                        bulkhead_page()->name);
        return EAGAIN;
    }
    int thread = claim();
    if (thread == LIBC_NOBODY) {
        bulkhead_printf("%s: pthread_create: its %d threads with entry `pthread` are all in use: the manifest has to "
                        "give it more\n",
                        bulkhead_page()->name, libc_count() - 1);
        return EAGAIN;
    }
    struct libc_thread *new = libc_threads + thread;
    if (attr && attr->inherit == PTHREAD_EXPLICIT_SCHED) {
        uint8_t before = new->own;
        new->own = new->now = (uint8_t)attr->param.sched_priority;
        if (!libc_give(thread, new->own)) {
            new->own = new->now = before;
            new->state = LIBC_IDLE;
            return EPERM;
        }
    }
    new->start = start;
    new->argument = argument;
    new->result = NULL;
    new->joiner = LIBC_NOBODY;
    new->detached = attr && attr->detached == PTHREAD_CREATE_DETACHED;
    *to = handle(thread);
    new->state = LIBC_TAKEN;
    libc_wake(thread);
    return 0;
}

int pthread_join(pthread_t of, void **result)
{
    struct libc_thread *thread = find(of);
    int nobody = LIBC_NOBODY, self = libc_self();
    if (!thread)
        return ESRCH;
    if (thread == libc_threads + self)
        return EDEADLK;
    if (thread->detached == 1 || !atomic_compare_exchange_strong(&thread->joiner, &nobody, self))
        return EINVAL;
    while (thread->state != LIBC_ENDED)
        libc_park(BULKHEAD_FOREVER);
    if (result)
        *result = thread->result;
    release(thread);
    return 0;
}

int pthread_detach(pthread_t of)
{
    struct libc_thread *thread = find(of);
    uint32_t joinable = 0;
    if (!thread)
        return ESRCH;
    if (thread->joiner != LIBC_NOBODY)
        return EINVAL;
    if (atomic_compare_exchange_strong(&thread->detached, &joinable, 1))
        return 0;
    if (joinable == 1)
        return EINVAL;
    /* It has ended already. */
    release(thread);
    return 0;
}

pthread_t pthread_self(void)
{
    return handle(libc_self());
}

int pthread_equal(pthread_t a, pthread_t b)
{
    return a == b;
}

static bool others_run(void)
{
    for (int thread = 1; thread < LIBC_THREADS; thread++) {
        uint32_t state = libc_threads[thread].state;
        if (state == LIBC_CLAIMED || state == LIBC_TAKEN || state == LIBC_RUNNING)
            return true;
    }
    return false;
}

_Noreturn void pthread_exit(void *result)
{
    int thread = libc_self();
    struct libc_thread *self = libc_threads + thread;
    if (thread) {
        self->result = result;
        longjmp(self->end, 1);
    }
    /* The program goes on until its last thread ends. None tells that it does, so it looks. */
    libc_end_keys();
    while (others_run())
        libc_park(bulkhead_now() + 10000000);
    exit(0);
}

int sched_yield(void)
{
    struct bulkhead_message message = {0};
    uint64_t named = 0;
    bulkhead_syscall(BULKHEAD_OP_YIELD, 0, &named, &message);
    return 0;
}

int pthread_setschedprio(pthread_t of, int priority)
{
    struct libc_thread *thread = find(of);
    if (!thread)
        return ESRCH;
    if (priority < 0 || priority > 255)
        return EINVAL;
    uint8_t before = thread->own;
    thread->own = (uint8_t)priority;
    /* One that is lent more goes back to this later. */
    if (thread->raised && thread->now > priority)
        return 0;
    if (!libc_give((int)(thread - libc_threads), (uint8_t)priority)) {
        thread->own = before;
        return EPERM;
    }
    thread->now = (uint8_t)priority;
    return 0;
}

int pthread_getschedparam(pthread_t of, int *policy, struct sched_param *param)
{
    struct libc_thread *thread = find(of);
    if (!thread)
        return ESRCH;
    *policy = SCHED_FIFO;
    param->sched_priority = thread->own;
    return 0;
}

int pthread_attr_init(pthread_attr_t *attr)
{
    *attr = (pthread_attr_t){.detached = PTHREAD_CREATE_JOINABLE, .inherit = PTHREAD_INHERIT_SCHED};
    return 0;
}

int pthread_attr_destroy(pthread_attr_t *attr)
{
    (void)attr;
    return 0;
}

int pthread_attr_setdetachstate(pthread_attr_t *attr, int state)
{
    attr->detached = state;
    return state == PTHREAD_CREATE_JOINABLE || state == PTHREAD_CREATE_DETACHED ? 0 : EINVAL;
}

int pthread_attr_getdetachstate(const pthread_attr_t *attr, int *state)
{
    *state = attr->detached;
    return 0;
}

/* The manifest says how large stacks are. */
int pthread_attr_setstacksize(pthread_attr_t *attr, size_t bytes)
{
    attr->stack = bytes;
    return 0;
}

int pthread_attr_getstacksize(const pthread_attr_t *attr, size_t *bytes)
{
    *bytes = attr->stack;
    return 0;
}

int pthread_attr_setinheritsched(pthread_attr_t *attr, int inherit)
{
    attr->inherit = inherit;
    return inherit == PTHREAD_INHERIT_SCHED || inherit == PTHREAD_EXPLICIT_SCHED ? 0 : EINVAL;
}

int pthread_attr_setschedpolicy(pthread_attr_t *attr, int policy)
{
    (void)attr;
    return policy == SCHED_FIFO ? 0 : ENOTSUP;
}

int pthread_attr_setschedparam(pthread_attr_t *attr, const struct sched_param *param)
{
    attr->param = *param;
    return param->sched_priority >= 0 && param->sched_priority <= 255 ? 0 : EINVAL;
}

int pthread_attr_getschedparam(const pthread_attr_t *attr, struct sched_param *param)
{
    *param = attr->param;
    return 0;
}
