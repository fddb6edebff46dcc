/* Waiting, and locks that lend their holder a priority.
 *
 * A lock is one word: the thread that has it, and a bit for each thread that waits. The holder hands it to the most
 * important of them. A thread that waits lends its priority to the holder. If the holder waits for another lock, that
 * one's holder gets it, too. A holder goes back to its own priority when it has no lock any more.
 *
 * The library's locks and pthread_mutex_t are both this.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "libc.h"

#include <sys/lock.h>

#define SHIFT 56
#define WAITING ((1ul << SHIFT) - 1)
/* Holders of locks that wait for others, one behind the other: more are not looked at. */
#define CHAIN 16

struct libc_thread libc_threads[LIBC_THREADS];

static unsigned long mine(int thread)
{
    return (unsigned long)(thread + 1) << SHIFT;
}

static int owner(unsigned long word)
{
    return (int)(word >> SHIFT) - 1;
}

int libc_owner(const unsigned long *word)
{
    return owner(__atomic_load_n(word, __ATOMIC_SEQ_CST));
}

static bool change(unsigned long *word, unsigned long *seen, unsigned long next)
{
    return __atomic_compare_exchange_n(word, seen, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

bool libc_park(uint64_t until)
{
    uint32_t wakes = libc_threads[libc_self()].wakes;
    uint64_t bits;
    if (wakes)
        return bulkhead_code(bulkhead_wait(wakes, until, &bits)) != BULKHEAD_TIMED_OUT;
    /* The manifest gives no memory for a notification: it looks again in its next period. */
    struct bulkhead_message message = {0};
    uint64_t named = 0;
    if (bulkhead_now() >= until)
        return false;
    bulkhead_syscall(BULKHEAD_OP_YIELD, 0, &named, &message);
    return true;
}

void libc_wake(int thread)
{
    uint32_t wakes = libc_threads[thread].wakes;
    if (wakes)
        bulkhead_signal(wakes);
}

int libc_first(unsigned long set)
{
    int first = LIBC_NOBODY;
    for (; set; set &= set - 1) {
        int thread = __builtin_ctzl(set);
        if (first == LIBC_NOBODY || libc_threads[thread].now > libc_threads[first].now)
            first = thread;
    }
    return first;
}

bool libc_give(int thread, uint8_t priority)
{
    const struct libc_thread *from = libc_threads + libc_self(), *to = libc_threads + thread;
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {priority, to->most, from->capability};
    return from->capability && to->capability &&
           !bulkhead_invoke(to->capability, BULKHEAD_THREAD_SET_PRIORITY, words);
}

/* Raises a thread; false: the manifest does not allow it. */
static bool raise_to(int thread, uint8_t priority)
{
    struct libc_thread *to = libc_threads + thread;
    to->raised = true;
    if (!libc_give(thread, priority))
        return false;
    /* Again, because it may have gone back to its own one before the call. */
    to->raised = true;
    to->now = priority;
    return true;
}

/* Takes back what a thread was lent, once it has no lock. */
static void settle(int thread)
{
    struct libc_thread *of = libc_threads + thread;
    if (of->held || !of->raised)
        return;
    of->raised = false;
    of->now = of->own;
    libc_give(thread, of->own);
    /* Another thread may have taken a lock since the look at `held`, and have been lent a priority for that. */
    for (int n = 0; of->held && n < LIBC_THREADS; n++) {
        unsigned long *wants = libc_threads[n].wants;
        if (wants && libc_owner(wants) == thread && libc_threads[n].now > of->now)
            raise_to(thread, libc_threads[n].now);
    }
}

/* Gives the calling thread's priority to the holder of a lock, and to those that it waits for itself. */
static void lend(unsigned long *word)
{
    uint8_t priority = libc_threads[libc_self()].now;
    for (int n = 0; word && n < CHAIN; n++) {
        int thread = libc_owner(word);
        if (thread == LIBC_NOBODY || libc_threads[thread].now >= priority)
            return;
        if (!raise_to(thread, priority))
            return;
        if (libc_owner(word) != thread) {
            /* It let go meanwhile. */
            settle(thread);
            return;
        }
        word = libc_threads[thread].wants;
    }
}

bool libc_try(unsigned long *word)
{
    int self = libc_self();
    unsigned long seen = 0;
    if (!change(word, &seen, mine(self)))
        return false;
    libc_threads[self].held++;
    return true;
}

/* Waits for a lock. The thread that hands it over counts it as the new holder's. */
static bool later(unsigned long *word, uint64_t until)
{
    int self = libc_self();
    unsigned long own = 1ul << self, seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    for (bool over = false;;) {
        if (owner(seen) == self)
            return true;
        if (!seen) {
            if (libc_try(word))
                return true;
            seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        } else if (over) {
            if (change(word, &seen, seen & ~own))
                return false;
        } else if (!(seen & own)) {
            if (change(word, &seen, seen | own))
                seen |= own;
        } else {
            lend(word);
            over = !libc_park(until);
            seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
        }
    }
}

bool libc_lock(unsigned long *word, uint64_t until)
{
    if (libc_try(word))
        return true;
    struct libc_thread *self = libc_threads + libc_self();
    self->wants = word;
    bool got = later(word, until);
    self->wants = NULL;
    return got;
}

void libc_unlock(unsigned long *word)
{
    int self = libc_self(), next;
    unsigned long seen = __atomic_load_n(word, __ATOMIC_SEQ_CST), then;
    do {
        next = libc_first(seen & WAITING);
        then = next == LIBC_NOBODY ? 0 : mine(next) | (seen & WAITING & ~(1ul << next));
    } while (!change(word, &seen, then));
    if (next != LIBC_NOBODY) {
        libc_threads[next].held++;
        libc_wake(next);
    }
    libc_threads[self].held--;
    /* Last, because a thread in between may run from here on. */
    settle(self);
}

/* newlib's own locks. They may be taken again by the thread that has them. */
struct __lock {
    unsigned long word;
    unsigned depth;
};

#define LOCK(name) struct __lock __lock___##name
LOCK(sinit_recursive_mutex);
LOCK(sfp_recursive_mutex);
LOCK(atexit_recursive_mutex);
LOCK(at_quick_exit_mutex);
LOCK(malloc_recursive_mutex);
LOCK(env_recursive_mutex);
LOCK(tz_mutex);
LOCK(dd_hash_mutex);
LOCK(arc4random_mutex);

void *calloc(size_t, size_t);
void free(void *);

void __retarget_lock_init_recursive(_LOCK_T *lock)
{
    *lock = calloc(1, sizeof **lock);
    if (!*lock) {
        bulkhead_printf("%s: no memory for a lock\n", bulkhead_page()->name);
        bulkhead_exit(101);
    }
}

void __retarget_lock_close_recursive(_LOCK_T lock)
{
    free(lock);
}

void __retarget_lock_acquire_recursive(_LOCK_T lock)
{
    if (libc_owner(&lock->word) != libc_self())
        libc_lock(&lock->word, BULKHEAD_FOREVER);
    lock->depth++;
}

int __retarget_lock_try_acquire_recursive(_LOCK_T lock)
{
    bool got = libc_owner(&lock->word) == libc_self() || libc_try(&lock->word);
    if (got)
        lock->depth++;
    return got;
}

void __retarget_lock_release_recursive(_LOCK_T lock)
{
    if (!--lock->depth)
        libc_unlock(&lock->word);
}

void __retarget_lock_init(_LOCK_T *lock) __attribute__((alias("__retarget_lock_init_recursive")));
void __retarget_lock_close(_LOCK_T lock) __attribute__((alias("__retarget_lock_close_recursive")));
void __retarget_lock_acquire(_LOCK_T lock) __attribute__((alias("__retarget_lock_acquire_recursive")));
int __retarget_lock_try_acquire(_LOCK_T lock) __attribute__((alias("__retarget_lock_try_acquire_recursive")));
void __retarget_lock_release(_LOCK_T lock) __attribute__((alias("__retarget_lock_release_recursive")));
