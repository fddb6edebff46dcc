/* Mutexes, conditions, read-write locks, things done once, and values of each thread's own.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "libc.h"

#include <errno.h>

/* Takes a mutex until a time; EBUSY stands for a time that is over at once. */
static int take(pthread_mutex_t *mutex, bool tries, uint64_t until)
{
    if (mutex->kind != PTHREAD_MUTEX_NORMAL && libc_owner(&mutex->word) == libc_self()) {
        if (mutex->kind == PTHREAD_MUTEX_ERRORCHECK)
            return tries ? EBUSY : EDEADLK;
        if (mutex->depth == UINT32_MAX)
            return EAGAIN;
        mutex->depth++;
        return 0;
    }
    /* A normal mutex that its own thread takes again would never be handed over. */
    if (tries || libc_owner(&mutex->word) != libc_self()) {
        if (tries ? !libc_try(&mutex->word) : !libc_lock(&mutex->word, until))
            return tries ? EBUSY : ETIMEDOUT;
        mutex->depth = 1;
        return 0;
    }
    while (libc_park(until))
        ;
    return ETIMEDOUT;
}

int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    *mutex = (pthread_mutex_t){.kind = attr ? (unsigned)attr->kind : PTHREAD_MUTEX_NORMAL};
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    return libc_owner(&mutex->word) == LIBC_NOBODY ? 0 : EBUSY;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    return take(mutex, false, BULKHEAD_FOREVER);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    return take(mutex, true, 0);
}

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *time)
{
    if (time->tv_nsec < 0 || time->tv_nsec >= 1000000000)
        return EINVAL;
    return take(mutex, false, libc_until(CLOCK_REALTIME, time));
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    /* Also of a normal one: letting another thread's mutex go would take it from that. */
    if (libc_owner(&mutex->word) != libc_self())
        return EPERM;
    if (mutex->kind == PTHREAD_MUTEX_RECURSIVE && --mutex->depth)
        return 0;
    libc_unlock(&mutex->word);
    return 0;
}

int pthread_mutexattr_init(pthread_mutexattr_t *attr)
{
    *attr = (pthread_mutexattr_t){PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT};
    return 0;
}

int pthread_mutexattr_destroy(pthread_mutexattr_t *attr)
{
    (void)attr;
    return 0;
}

int pthread_mutexattr_settype(pthread_mutexattr_t *attr, int kind)
{
    if (kind < PTHREAD_MUTEX_NORMAL || kind > PTHREAD_MUTEX_ERRORCHECK)
        return EINVAL;
    attr->kind = kind;
    return 0;
}

int pthread_mutexattr_gettype(const pthread_mutexattr_t *attr, int *kind)
{
    *kind = attr->kind;
    return 0;
}

/* All mutexes lend their holder a priority, also those without a protocol. */
int pthread_mutexattr_setprotocol(pthread_mutexattr_t *attr, int protocol)
{
    if (protocol != PTHREAD_PRIO_NONE && protocol != PTHREAD_PRIO_INHERIT)
        return ENOTSUP;
    attr->protocol = protocol;
    return 0;
}

int pthread_mutexattr_getprotocol(const pthread_mutexattr_t *attr, int *protocol)
{
    *protocol = attr->protocol;
    return 0;
}

int pthread_condattr_init(pthread_condattr_t *attr)
{
    attr->clock = CLOCK_REALTIME;
    return 0;
}

int pthread_condattr_destroy(pthread_condattr_t *attr)
{
    (void)attr;
    return 0;
}

int pthread_condattr_setclock(pthread_condattr_t *attr, clockid_t clock)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return EINVAL;
    attr->clock = (unsigned long)clock;
    return 0;
}

int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr)
{
    *cond = (pthread_cond_t){0, attr ? attr->clock : CLOCK_REALTIME};
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *cond)
{
    return __atomic_load_n(&cond->waiting, __ATOMIC_SEQ_CST) ? EBUSY : 0;
}

static int wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until)
{
    unsigned long own = 1ul << libc_self();
    if (libc_owner(&mutex->word) != libc_self())
        return EPERM;
    unsigned depth = mutex->depth;
    bool in_time = true;
    __atomic_fetch_or(&cond->waiting, own, __ATOMIC_SEQ_CST);
    libc_unlock(&mutex->word);
    while (in_time && __atomic_load_n(&cond->waiting, __ATOMIC_SEQ_CST) & own)
        in_time = libc_park(until);
    /* A signal that came with the time counts. */
    bool over = __atomic_fetch_and(&cond->waiting, ~own, __ATOMIC_SEQ_CST) & own;
    libc_lock(&mutex->word, BULKHEAD_FOREVER);
    mutex->depth = depth;
    return over ? ETIMEDOUT : 0;
}

int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return wait(cond, mutex, BULKHEAD_FOREVER);
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *time)
{
    if (time->tv_nsec < 0 || time->tv_nsec >= 1000000000)
        return EINVAL;
    return wait(cond, mutex, libc_until((clockid_t)cond->clock, time));
}

int pthread_cond_signal(pthread_cond_t *cond)
{
    unsigned long seen = __atomic_load_n(&cond->waiting, __ATOMIC_SEQ_CST);
    int first;
    do {
        first = libc_first(seen);
        if (first == LIBC_NOBODY)
            return 0;
    } while (!__atomic_compare_exchange_n(&cond->waiting, &seen, seen & ~(1ul << first), false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    libc_wake(first);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *cond)
{
    unsigned long all = __atomic_exchange_n(&cond->waiting, 0, __ATOMIC_SEQ_CST);
    for (int first; (first = libc_first(all)) != LIBC_NOBODY; all &= ~(1ul << first))
        libc_wake(first);
    return 0;
}

int pthread_once(pthread_once_t *once, void (*work)(void))
{
    if (__atomic_load_n(&once->done, __ATOMIC_SEQ_CST))
        return 0;
    pthread_mutex_lock(&once->lock);
    if (!once->done) {
        work();
        __atomic_store_n(&once->done, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&once->lock);
    return 0;
}

/* A thread that wants to write comes before those that want to read. */

int pthread_rwlock_init(pthread_rwlock_t *of, const pthread_rwlockattr_t *attr)
{
    (void)attr;
    *of = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    return 0;
}

int pthread_rwlock_destroy(pthread_rwlock_t *of)
{
    return of->reading || of->writing ? EBUSY : 0;
}

static int read_lock(pthread_rwlock_t *of, bool waits)
{
    pthread_mutex_lock(&of->lock);
    bool busy;
    while ((busy = of->writing || of->wanted) && waits)
        pthread_cond_wait(&of->readers, &of->lock);
    of->reading += !busy;
    pthread_mutex_unlock(&of->lock);
    return busy ? EBUSY : 0;
}

static int write_lock(pthread_rwlock_t *of, bool waits)
{
    pthread_mutex_lock(&of->lock);
    bool busy;
    of->wanted++;
    while ((busy = of->writing || of->reading) && waits)
        pthread_cond_wait(&of->writers, &of->lock);
    of->wanted--;
    of->writing = of->writing || !busy;
    pthread_mutex_unlock(&of->lock);
    return busy ? EBUSY : 0;
}

int pthread_rwlock_rdlock(pthread_rwlock_t *of)
{
    return read_lock(of, true);
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t *of)
{
    return read_lock(of, false);
}

int pthread_rwlock_wrlock(pthread_rwlock_t *of)
{
    return write_lock(of, true);
}

int pthread_rwlock_trywrlock(pthread_rwlock_t *of)
{
    return write_lock(of, false);
}

int pthread_rwlock_unlock(pthread_rwlock_t *of)
{
    pthread_mutex_lock(&of->lock);
    if (of->writing)
        of->writing = 0;
    else
        of->reading--;
    if (!of->reading && of->wanted)
        pthread_cond_signal(&of->writers);
    else if (!of->wanted)
        pthread_cond_broadcast(&of->readers);
    pthread_mutex_unlock(&of->lock);
    return 0;
}

/* Values of each thread's own. */

static struct key {
    _Atomic bool used;
    void (*end)(void *);
    _Atomic uint32_t life;
} keys[PTHREAD_KEYS_MAX];

/* A value counts for the life of its key in which it was set. */
static _Thread_local struct {
    uint32_t life;
    void *value;
} values[PTHREAD_KEYS_MAX];

int pthread_key_create(pthread_key_t *to, void (*end)(void *))
{
    for (unsigned key = 0; key < PTHREAD_KEYS_MAX; key++) {
        bool unused = false;
        if (!atomic_compare_exchange_strong(&keys[key].used, &unused, true))
            continue;
        keys[key].end = end;
        keys[key].life++;
        *to = key;
        return 0;
    }
    return EAGAIN;
}

static bool known(pthread_key_t key)
{
    return key < PTHREAD_KEYS_MAX && keys[key].used;
}

int pthread_key_delete(pthread_key_t key)
{
    if (!known(key))
        return EINVAL;
    keys[key].used = false;
    return 0;
}

void *pthread_getspecific(pthread_key_t key)
{
    return known(key) && values[key].life == keys[key].life ? values[key].value : NULL;
}

int pthread_setspecific(pthread_key_t key, const void *value)
{
    if (!known(key))
        return EINVAL;
    values[key].life = keys[key].life;
    values[key].value = (void *)value;
    return 0;
}

/* Calls the destructors of the calling thread's values. */
void libc_end_keys(void)
{
    bool again = true;
    for (int round = 0; again && round < PTHREAD_DESTRUCTOR_ITERATIONS; round++) {
        again = false;
        for (pthread_key_t key = 0; key < PTHREAD_KEYS_MAX; key++) {
            void *value = pthread_getspecific(key);
            values[key].value = NULL;
            if (!value || !keys[key].end)
                continue;
            again = true;
            keys[key].end(value);
        }
    }
}
