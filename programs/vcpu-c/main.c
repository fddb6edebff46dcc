/* Quest's VCPU functions, each with what it does and what it refuses.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-program.h>
#include <quest-vcpu.h>

enum { MILLISECOND = 1000000 };

static volatile int for_worker, for_leaver;
static volatile uint64_t count;

static void sleep(uint64_t nanos)
{
    bulkhead_sleep_until(bulkhead_waits("main"), bulkhead_now() + nanos);
}

static void show(const char *what, int result)
{
    bulkhead_printf("%s: %d\n", what, result);
}

/* The next one in the caller's walk. */
static void walk(const char *who)
{
    struct vcpu_param p;
    int result = vcpu_getparam(&p);
    if (result)
        show("walk", result);
    else
        bulkhead_printf("%s: VCPU %d is %s, %d us in %d us\n", who, p.vcpuid, p.policy == SCHED_PIBS ? "I/O" : "Main",
                        p.C, p.T);
}

/* Takes what its VCPU gives it, until that is destroyed. */
static _Noreturn int work(uint32_t thread)
{
    uint64_t bits;
    (void)thread;
    bulkhead_wait(bulkhead_waits("worker"), BULKHEAD_FOREVER, &bits);
    walk("worker");
    show("worker binds itself to the I/O VCPU", vcpu_bind_task(for_worker));
    for (;;)
        count++;
}
BULKHEAD_THREAD(worker, work)

/* Destroys the VCPU that it runs on, which is the last thing that it does. */
static _Noreturn int leave(uint32_t thread)
{
    uint64_t bits;
    (void)thread;
    bulkhead_wait(bulkhead_waits("leaver"), BULKHEAD_FOREVER, &bits);
    show("leaver binds itself", vcpu_bind_task(for_leaver));
    show("leaver binds itself again", vcpu_bind_task(for_leaver));
    show("leaver destroys its own without force", vcpu_destroy(for_leaver, 0));
    vcpu_destroy(for_leaver, 1);
    for (;;)
        count++;
}
BULKHEAD_THREAD(leaver, leave)

/* The longest time for which this thread did not run, of 20 ms. */
static uint64_t longest_gap(void)
{
    uint64_t last = bulkhead_now(), end = last + 20 * MILLISECOND, gap = 0;
    while (last < end) {
        uint64_t now = bulkhead_now();
        if (now - last > gap)
            gap = now - last;
        last = now;
    }
    return gap;
}

static void resume(const char *thread)
{
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {0};
    bulkhead_invoke(bulkhead_manages(thread), BULKHEAD_THREAD_RESUME, words);
}

static bool advances(void)
{
    uint64_t before = count;
    sleep(5 * MILLISECOND);
    return count != before;
}

int main(void)
{
    struct vcpu_param fast = {.policy = SCHED_SPORADIC, .mask = 1, .C = 1000, .T = 5000};
    struct vcpu_param io = {.policy = SCHED_PIBS, .mask = 1, .C = 1, .T = 10000};
    struct vcpu_param hog = {.policy = SCHED_SPORADIC, .mask = 1, .C = 6000, .T = 10000};
    struct vcpu_param bad = {.policy = 7, .mask = 1, .C = 1, .T = 100};
    io.C = io.T / 10;

    bulkhead_ready();
    walk("main");
    int main_vcpu = vcpu_create(&fast), io_vcpu = vcpu_create(&io), plain = vcpu_create(NULL);
    bulkhead_printf("created: Main %d, I/O %d, default %d\n", main_vcpu, io_vcpu, plain);
    for (int n = 0; n < 6; n++)
        walk("main");

    show("60 % more than admission allows", vcpu_create(&hog));
    show("a policy that is none", vcpu_create(&bad));
    show("set to what admission refuses", (hog.vcpuid = plain, vcpu_setparam(&hog)));
    show("set to nothing", vcpu_setparam(NULL));
    show("walk into nothing", vcpu_getparam(NULL));
    io.vcpuid = io_vcpu;
    io.C = io.T / 20;
    show("set to 5 %", vcpu_setparam(&io));

    show("bind", vcpu_bind_task(main_vcpu));
    uint64_t gap = longest_gap();
    bulkhead_printf("1 ms of 5: stopped for about 4 ms: %d\n", gap > 3500000 && gap < 4100000);
    show("bind to nothing", vcpu_bind_task(99));

    for_worker = io_vcpu;
    bulkhead_signal(bulkhead_signals("worker"));
    sleep(20 * MILLISECOND);
    bulkhead_printf("the worker works: %d\n", advances());
    show("bind to the worker's", vcpu_bind_task(io_vcpu));
    show("destroy with a thread", vcpu_destroy(io_vcpu, 0));
    show("destroy by force", vcpu_destroy(io_vcpu, 1));
    bulkhead_printf("the worker works: %d\n", advances());
    show("destroy it again", vcpu_destroy(io_vcpu, 1));
    resume("worker");
    bulkhead_printf("the worker, resumed, works: %d\n", advances());

    for_leaver = vcpu_create(&fast);
    bulkhead_signal(bulkhead_signals("leaver"));
    sleep(20 * MILLISECOND);
    bulkhead_printf("the leaver works: %d\n", advances());
    resume("leaver");
    bulkhead_printf("the leaver, resumed, works: %d\n", advances());
    show("destroy what it has destroyed", vcpu_destroy(for_leaver, 1));
    show("bind to what it has destroyed", vcpu_bind_task(for_leaver));
    show("set what it has destroyed", (fast.vcpuid = for_leaver, vcpu_setparam(&fast)));
    bulkhead_printf("its place is another one's: %d\n", vcpu_create(NULL) == io_vcpu);

    show("bind to the first one", vcpu_bind_task(1));
    show("destroy without a thread", vcpu_destroy(main_vcpu, 0));
    walk("main");
    return 0;
}
