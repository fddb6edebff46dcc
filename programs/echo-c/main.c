/* What a program in C can do: call a server in Rust and one of its own, sleep, signal and wait.
 *
 * Arguments: rounds=N (default 1000).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-program.h>

enum { MILLISECOND = 1000000 };

/* Each thread has its own. */
static __thread uint64_t begun = 5;
static _Thread_local volatile uint64_t calls, none[100];
static _Thread_local _Alignas(256) volatile uint8_t aligned[3] = {7, 8, 9};

/* Whether they began as they should, and those of others don't show. */
static bool own(uint64_t times)
{
    bool right = begun == 5 + calls && calls == times && none[99] == 0 && aligned[2] == 9 && (uintptr_t)aligned % 256 == 0;
    calls++;
    begun++;
    return right;
}

/* A passive thread: answers with the double of what it got, who called, and its own number. */
static int serve(uint32_t thread)
{
    uint32_t from = bulkhead_serves("doubles"), reply = bulkhead_reply_of("doubler");
    struct bulkhead_received received;
    uint64_t status = bulkhead_receive(from, reply, BULKHEAD_FOREVER, &received), times = 0;
    while (status == BULKHEAD_OK) {
        uint64_t *words = received.message.words;
        words[3] = own(times++) ? begun : 0;
        words[0] *= 2;
        words[1] = received.badge;
        words[2] = thread == bulkhead_thread() ? thread : UINT64_MAX;
        received.message.info = bulkhead_info(0, 4);
        status = bulkhead_reply_recv(from, reply, &received);
    }
    bulkhead_printf("server: status 0x%lx\n", status);
    return 1;
}
BULKHEAD_THREAD(server, serve)

/* The last answer of the Rust server, which adds up what it is sent, times the caller's badge. */
static uint64_t sum(uint64_t rounds)
{
    uint32_t sums = bulkhead_endpoint("sums");
    struct bulkhead_message message = {0};
    for (uint64_t n = 1; n <= rounds; n++) {
        message = (struct bulkhead_message){bulkhead_info(0, 1), {n}};
        uint64_t status = bulkhead_call(sums, &message);
        if (status != BULKHEAD_OK) {
            bulkhead_printf("round %lu: status 0x%lx\n", n, status);
            return 0;
        }
    }
    return message.words[0];
}

static bool doubles(void)
{
    struct bulkhead_message message = {bulkhead_info(0, 1), {21}};
    uint64_t status = bulkhead_call(bulkhead_endpoint("doubles"), &message);
    bulkhead_printf("doubles: %lu for badge %lu by thread %lu\n", message.words[0], message.words[1],
                    message.words[2]);
    return status == BULKHEAD_OK && message.words[0] == 42 && message.words[1] == 7 && message.words[2] == 1 &&
           bulkhead_thread() == 0;
}

/* The server counts in its own variables, this thread in its. */
static bool locals(void)
{
    struct bulkhead_message message = {0};
    for (uint64_t n = 0; n < 3; n++) {
        message = (struct bulkhead_message){bulkhead_info(0, 1), {n}};
        bulkhead_call(bulkhead_endpoint("doubles"), &message);
    }
    bool first = own(0);
    bulkhead_printf("own variables: %lu of the server, %lu here\n", message.words[3], begun);
    return first && own(1) && message.words[3] == 9;
}

/* A signal that came before is there; a deadline that is past polls; sleep ends when it is time. */
static bool waits(void)
{
    uint32_t signals = bulkhead_signals("own"), own = bulkhead_waits("own");
    uint64_t bits, due = bulkhead_now() + MILLISECOND;
    bulkhead_signal(signals);
    bool came = bulkhead_wait(own, BULKHEAD_FOREVER, &bits) == BULKHEAD_OK && bits == 4;
    bool none = bulkhead_code(bulkhead_wait(own, 0, &bits)) == BULKHEAD_TIMED_OUT;
    bool slept = bulkhead_sleep_until(own, due) == BULKHEAD_OK && bulkhead_now() >= due;
    bulkhead_printf("signal %d, nothing %d, slept %d\n", came, none, slept);
    return came && none && slept;
}

/* Memory that was given can be used; authority that was not is refused, and the status says so. */
static bool others(void)
{
    uint64_t len = 0, words[BULKHEAD_REGISTER_WORDS] = {0};
    volatile uint64_t *board = bulkhead_memory("board", &len);
    if (!board || len != 4096 || bulkhead_memory("nothing", NULL))
        return false;
    board[511] = 1;
    uint64_t status = bulkhead_invoke(BULKHEAD_SLOT_CONTROL, BULKHEAD_CONTROL_SET_CONTEXT, words);
    bulkhead_printf("board %lu, code %u of argument %lu\n", board[511], bulkhead_code(status),
                    status >> 8 & 0xFF);
    return bulkhead_code(status) == BULKHEAD_NO_CAPABILITY &&
           !bulkhead_find("sums", BULKHEAD_KIND_ENDPOINT, BULKHEAD_RIGHT_READ);
}

int main(void)
{
    uint64_t rounds = bulkhead_arg_u64("rounds", 1000), all = sum(rounds);
    bulkhead_printf("hello from %s in C: sum %lu\n", bulkhead_page()->name, all);
    bulkhead_ready();
    return all == 3 * rounds * (rounds + 1) / 2 && doubles() && locals() && waits() && others() ? 0 : 1;
}
