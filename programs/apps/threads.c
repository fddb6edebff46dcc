/* Threads, mutexes and conditions in a program of the kernel, in plain C.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ITEMS 1000
#define MILLISECOND 1000000

static int failed;

static void look(const char *name, int right)
{
    printf("%s: %s\n", name, right ? "right" : "WRONG");
    failed += !right;
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void spin(int milliseconds)
{
    for (long long end = now() + milliseconds * (long long)MILLISECOND; now() < end;)
        ;
}

/* Each thread has its own errno, and its own variables, as at its first start. */
static _Thread_local int own = 41;

static void *separate(void *argument)
{
    int fresh = own == 41 && errno == 0;
    own = (int)(long)argument;
    errno = own;
    usleep(2000);
    return (void *)(long)(fresh && own == (int)(long)argument && errno == own);
}

static void separate_each(void)
{
    int right = 1;
    errno = 7;
    for (int round = 0; round < 3; round++) {
        pthread_t threads[3];
        void *results[3];
        for (long n = 0; n < 3; n++)
            right &= !pthread_create(threads + n, NULL, separate, (void *)(100 + n));
        for (int n = 0; n < 3; n++)
            right &= !pthread_join(threads[n], results + n) && results[n];
        right &= pthread_join(threads[0], NULL) == ESRCH;
    }
    look("variables of each thread's own", right && errno == 7 && own == 41);
}

/* A queue of 4 between two threads that put and two that take. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t full, empty;
    int items[4], count;
    long sum;
    int taken;
} queue = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0, 0, 0};

static void *put(void *argument)
{
    for (int n = 1; n <= ITEMS; n++) {
        pthread_mutex_lock(&queue.lock);
        while (queue.count == 4)
            pthread_cond_wait(&queue.full, &queue.lock);
        queue.items[queue.count++] = n;
        pthread_cond_signal(&queue.empty);
        pthread_mutex_unlock(&queue.lock);
    }
    return argument;
}

static void take(int count)
{
    for (int n = 0; n < count; n++) {
        pthread_mutex_lock(&queue.lock);
        while (!queue.count)
            pthread_cond_wait(&queue.empty, &queue.lock);
        queue.sum += queue.items[--queue.count];
        queue.taken++;
        pthread_cond_broadcast(&queue.full);
        pthread_mutex_unlock(&queue.lock);
    }
}

static void *take_half(void *argument)
{
    take(ITEMS);
    return argument;
}

static void through_queue(void)
{
    pthread_t threads[3];
    pthread_create(threads, NULL, put, NULL);
    pthread_create(threads + 1, NULL, put, NULL);
    pthread_create(threads + 2, NULL, take_half, NULL);
    take(ITEMS);
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    look("a queue of mutex and conditions", queue.taken == 2 * ITEMS && queue.sum == (long)ITEMS * (ITEMS + 1));
}

/* malloc, free and printf of several threads at once. */
static void *allocate(void *argument)
{
    unsigned seed = (unsigned)(long)argument;
    char *pieces[16] = {0}, text[64];
    for (int n = 0; n < 2000; n++) {
        int at = rand_r(&seed) % 16;
        if (pieces[at]) {
            snprintf(text, sizeof text, "%d %.2f", at, at / 4.0);
            if (strcmp(pieces[at], text))
                return NULL;
        }
        free(pieces[at]);
        pieces[at] = malloc(32 + (size_t)(rand_r(&seed) % 400));
        if (!pieces[at])
            return NULL;
        sprintf(pieces[at], "%d %.2f", at, at / 4.0);
    }
    for (int n = 0; n < 16; n++)
        free(pieces[n]);
    return argument;
}

static void allocate_all(void)
{
    pthread_t threads[3];
    int right = 1;
    for (long n = 0; n < 3; n++)
        pthread_create(threads + n, NULL, allocate, (void *)(n + 1));
    right &= allocate((void *)9) != NULL;
    for (int n = 0; n < 3; n++) {
        void *result;
        pthread_join(threads[n], &result);
        right &= result != NULL;
    }
    look("malloc and printf of four threads", right);
}

/* A thread of low priority has the mutex, and one of middle priority runs for long. One of high priority wants the
 * mutex: it waits for the first one only, to which it lends its priority. */
static pthread_mutex_t shared;
static long long high_had_it, middle_ended;

static void *low(void *argument)
{
    pthread_mutex_lock(&shared);
    spin(4);
    pthread_mutex_unlock(&shared);
    return argument;
}

static void *middle(void *argument)
{
    usleep(1000);
    spin(20);
    middle_ended = now();
    return argument;
}

static void *high(void *argument)
{
    usleep(2000);
    pthread_mutex_lock(&shared);
    high_had_it = now();
    pthread_mutex_unlock(&shared);
    return argument;
}

static void inversion(void)
{
    void *(*const starts[])(void *) = {low, middle, high};
    pthread_t threads[3];
    pthread_attr_t attr;
    long long begun = now();
    int right = 1;
    pthread_mutex_init(&shared, NULL);
    pthread_attr_init(&attr);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    for (int n = 0; n < 3; n++) {
        pthread_attr_setschedparam(&attr, &(struct sched_param){.sched_priority = 60 + 10 * n});
        right &= !pthread_create(threads + n, &attr, starts[n], NULL);
    }
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    look("priority inheritance", right && high_had_it < middle_ended && high_had_it - begun < 8 * MILLISECOND);
}

/* The holder of a mutex waits for another one itself: the thread that has that one is lent the priority. */
static pthread_mutex_t front = PTHREAD_MUTEX_INITIALIZER;

static void *between(void *argument)
{
    usleep(500);
    pthread_mutex_lock(&front);
    pthread_mutex_lock(&shared);
    pthread_mutex_unlock(&shared);
    pthread_mutex_unlock(&front);
    return argument;
}

static void chain(void)
{
    void *(*const starts[])(void *) = {low, between, middle};
    pthread_t threads[3];
    pthread_attr_t attr;
    struct sched_param after;
    long long begun = now();
    int policy, right = 1;
    pthread_attr_init(&attr);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    for (int n = 0; n < 3; n++) {
        pthread_attr_setschedparam(&attr, &(struct sched_param){.sched_priority = 60 + 10 * n});
        right &= !pthread_create(threads + n, &attr, starts[n], NULL);
    }
    usleep(2000);
    pthread_mutex_lock(&front);
    right &= now() - begun < 8 * MILLISECOND;
    pthread_mutex_unlock(&front);
    right &= !pthread_getschedparam(threads[0], &policy, &after) && after.sched_priority == 60;
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    look("priority inheritance through two mutexes", right);
}

static void kinds(void)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t mutex;
    int right = 1;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &attr);
    right &= !pthread_mutex_lock(&mutex) && !pthread_mutex_lock(&mutex) && pthread_mutex_destroy(&mutex) == EBUSY;
    right &= !pthread_mutex_unlock(&mutex) && !pthread_mutex_unlock(&mutex) && pthread_mutex_unlock(&mutex) == EPERM;
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&mutex, &attr);
    right &= !pthread_mutex_lock(&mutex) && pthread_mutex_lock(&mutex) == EDEADLK;
    right &= pthread_mutex_trylock(&mutex) == EBUSY && !pthread_mutex_unlock(&mutex);
    look("kinds of mutexes", right);
}

static void timeouts(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 3 * MILLISECOND;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    long long begun = now();
    int result = pthread_cond_timedwait(&cond, &mutex, &until);
    long long waited = now() - begun;
    look("a wait that is over", result == ETIMEDOUT && waited > 2 * MILLISECOND && waited < 5 * MILLISECOND);
    pthread_mutex_unlock(&mutex);
}

static int done_once, ended;
static pthread_key_t key;

static void do_once(void)
{
    done_once++;
}

static void end_value(void *value)
{
    ended += *(int *)value;
    free(value);
}

static void *use_key(void *argument)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int *value = malloc(sizeof *value);
    pthread_once(&once, do_once);
    *value = (int)(long)argument;
    pthread_setspecific(key, value);
    usleep(1000);
    if (pthread_getspecific(key) == value)
        pthread_exit(argument);
    return NULL;
}

static void once_and_keys(void)
{
    pthread_t threads[3];
    void *result;
    long sum = 0;
    pthread_key_create(&key, end_value);
    for (long n = 1; n <= 3; n++)
        pthread_create(threads + n - 1, NULL, use_key, (void *)n);
    for (int n = 0; n < 3; n++) {
        pthread_join(threads[n], &result);
        sum += (long)result;
    }
    look("things done once, and keys", done_once == 1 && sum == 6 && ended == 6);
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int readers, most, torn, pair[2];

static void *read_pair(void *argument)
{
    for (int n = 0; n < 20; n++) {
        pthread_rwlock_rdlock(&rwlock);
        int inside = __atomic_add_fetch(&readers, 1, __ATOMIC_SEQ_CST);
        most = inside > most ? inside : most;
        usleep(200);
        torn += pair[0] != pair[1];
        __atomic_sub_fetch(&readers, 1, __ATOMIC_SEQ_CST);
        pthread_rwlock_unlock(&rwlock);
    }
    return argument;
}

static void readers_and_writer(void)
{
    pthread_t threads[3];
    for (int n = 0; n < 3; n++)
        pthread_create(threads + n, NULL, read_pair, NULL);
    for (int n = 0; n < 20; n++) {
        pthread_rwlock_wrlock(&rwlock);
        pair[0]++;
        usleep(100);
        pair[1]++;
        torn += readers;
        pthread_rwlock_unlock(&rwlock);
        usleep(100);
    }
    for (int n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    look("readers and a writer", !torn && most > 1);
}

static void *wait_a_while(void *argument)
{
    usleep(5000);
    return argument;
}

static void none_left(void)
{
    pthread_t threads[4];
    int results[4];
    for (int n = 0; n < 4; n++)
        results[n] = pthread_create(threads + n, NULL, wait_a_while, NULL);
    int right = !results[0] && !results[1] && !results[2] && results[3] == EAGAIN;
    pthread_detach(threads[0]);
    for (int n = 1; n < 3; n++)
        pthread_join(threads[n], NULL);
    usleep(2000);
    right &= !pthread_create(threads, NULL, wait_a_while, NULL) && !pthread_join(threads[0], NULL);
    look("a fourth thread of three", right);
}

static void at_end(void)
{
    printf("%d failed\n", failed);
}

int main(void)
{
    atexit(at_end);
    separate_each();
    through_queue();
    allocate_all();
    inversion();
    chain();
    kinds();
    timeouts();
    once_and_keys();
    readers_and_writer();
    none_left();
    return failed;
}
