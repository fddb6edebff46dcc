/* What the parts of this folder share: threads that wait and are woken, and locks.
 *
 * All threads of a program run on one core, and the kernel switches them at any instruction. So each word is atomic,
 * and no order of memory between cores matters.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_LIBC_H
#define BULKHEAD_LIBC_H

#include <bulkhead-program.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

enum {
    /* Threads of a program that a word of a lock has bits for. */
    LIBC_THREADS = 56,
    /* No thread. */
    LIBC_NOBODY = -1,
};

/* Lives of a thread of the pool. */
enum {
    /* It has not run yet. A thread that takes it is LIBC_CLAIMED or LIBC_TAKEN before it does. */
    LIBC_NEW,
    LIBC_IDLE,
    LIBC_CLAIMED,
    LIBC_TAKEN,
    LIBC_RUNNING,
    LIBC_ENDED,
};

struct libc_thread {
    /* Notification at which it waits, which it makes itself; 0: it has none. */
    _Atomic uint32_t wakes;
    /* Its capability, by which it is lent priorities; 0: the manifest gives none. */
    uint32_t capability;
    /* The manifest's priority, or that which it was given since; and the one that it has now. */
    _Atomic uint8_t own, now;
    /* The highest priority that it may give. */
    uint8_t most;
    /* Somebody has raised `now` since `held` was 0. */
    _Atomic bool raised;
    /* Locks that it has. */
    _Atomic uint32_t held;
    /* Word of the lock that it waits for. */
    unsigned long *_Atomic wants;

    _Atomic uint32_t state, life;
    _Atomic int joiner;
    /* 0: joinable, 1: detached, 2: ended while joinable. */
    _Atomic uint32_t detached;
    void *(*start)(void *);
    void *argument, *result;
    jmp_buf end;
};

extern struct libc_thread libc_threads[LIBC_THREADS];

/* The calling thread's number. */
static inline int libc_self(void)
{
    return (int)bulkhead_thread();
}

/* Prepares the calling thread, as the first thing that it does. */
void libc_begin(void);
/* Threads that the manifest gives the program. */
int libc_count(void);
/* Waits until it is woken, or for no reason; false: the time came first. */
bool libc_park(uint64_t until);
/* Wakes a thread, or lets it not wait when it would the next time. */
void libc_wake(int thread);
/* The thread of a set with the highest priority, or LIBC_NOBODY. */
int libc_first(unsigned long set);
/* Gives a thread a priority, if the manifest allows it. */
bool libc_give(int thread, uint8_t priority);

/* Takes a lock; false: the time came first. */
bool libc_lock(unsigned long *word, uint64_t until);
bool libc_try(unsigned long *word);
void libc_unlock(unsigned long *word);
/* The thread that has it, or LIBC_NOBODY. */
int libc_owner(const unsigned long *word);

/* A time as nanoseconds since the processor's start. */
uint64_t libc_until(clockid_t clock, const struct timespec *time);

#endif
