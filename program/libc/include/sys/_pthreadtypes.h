/* Types of pthreads, in place of newlib's: see ../pthread.h.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_LIBC_PTHREADTYPES_H
#define BULKHEAD_LIBC_PTHREADTYPES_H

#include <sys/sched.h>

/* Number of a thread of the program, from 1, and behind it the number of its life. */
typedef unsigned long pthread_t;

/* Bits 56 to 63: the thread that has it, from 1, or 0. Bits 0 to 55: threads that wait for it. */
typedef struct {
    unsigned long word;
    unsigned kind, depth;
} pthread_mutex_t;

typedef struct {
    int kind, protocol;
} pthread_mutexattr_t;

/* Bits 0 to 55: threads that wait. */
typedef struct {
    unsigned long waiting;
    unsigned long clock;
} pthread_cond_t;

typedef struct {
    unsigned long clock;
} pthread_condattr_t;

typedef struct {
    pthread_mutex_t lock;
    unsigned done;
} pthread_once_t;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t readers, writers;
    unsigned reading, writing, wanted;
} pthread_rwlock_t;

typedef struct {
    int unused;
} pthread_rwlockattr_t;

typedef unsigned pthread_key_t;

typedef struct {
    int detached, inherit;
    struct sched_param param;
    unsigned long stack;
} pthread_attr_t;

#endif
