/* An end in C of the channel `channel=NAME`: what guests/talk does in tests, by the same words. `role=` is send,
 * receive, victim, or refuse, which tries what an end must refuse; with `lives=N` it restarts itself that often but
 * once.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-channel.h>

/* How long the other end may keep silent. */
enum { PATIENCE = 30000 };
/* Of the longest message that a channel here carries. */
enum { ROOM = 4096 };

static struct bulkhead_context context;
static const char *name;
static bulkhead_sender sender;
static bulkhead_receiver receiver;

/* A message that shows whether it is whole (crates/testing/scenarios/src/note.rs). */
struct note {
    uint64_t words[8];
};

static struct note note_of(uint64_t number)
{
    struct note note = {{number}};
    for (uint64_t n = 0; n < 7; n++)
        note.words[n + 1] = number * (0x9E3779B97F4A7C15ul + 2 * n);
    return note;
}

/* As a record it is shorter: 8 to 64 bytes by its number. */
static size_t length_of(uint64_t number, size_t longest)
{
    return longest == sizeof(struct note) ? longest : 8 + number % 57;
}

static const char *word_of(int64_t stop)
{
    static const char *const words[] = {"Wait", "Apart", "Lost", "Left", "Corrupted", "Foreign", "Size", "Closed"};
    return stop < 0 && -stop <= 8 ? words[-stop - 1] : "no end";
}

static bool is_news(int64_t stop)
{
    return stop == BULKHEAD_LOST || stop == BULKHEAD_LEFT;
}

/* Up to which number to go in this life: half of `count`, and all in the last one. */
static uint64_t limit(void)
{
    uint64_t count = bulkhead_arg_u64(context, "count", 0);
    return context.incarnation + 1 < bulkhead_arg_u64(context, "lives", 1) ? count / 2 : count;
}

static int send_number(uint64_t number, int64_t millis)
{
    struct note note = note_of(number);
    return bulkhead_send(&sender, &note, length_of(number, bulkhead_sender_longest(&sender)), millis);
}

/* The number of a message, 0 if it is not whole, or what there was instead. */
static int64_t receive_number(int64_t millis)
{
    static union {
        uint8_t bytes[ROOM];
        struct note note;
    } buffer;
    int64_t len = bulkhead_receive(&receiver, &buffer, sizeof buffer, millis);
    if (len < 0)
        return len;
    uint64_t number = buffer.note.words[0];
    struct note right = note_of(number);
    bool whole = (size_t)len == length_of(number, bulkhead_receiver_longest(&receiver));
    for (int64_t n = 0; whole && n < len; n++)
        whole = buffer.bytes[n] == ((const uint8_t *)&right)[n];
    return whole && number <= INT64_MAX ? (int64_t)number : 0;
}

/* Sends the numbers from 1 on, with `gap` microseconds from one to the next. */
static uint32_t send(void)
{
    uint64_t count = limit(), gap = bulkhead_arg_u64(context, "gap", 0);
    if (bulkhead_sender_open(context, name, 0, &sender) < 0)
        return 2;
    for (uint64_t number = 1; number <= count; number++) {
        int sent;
        while ((sent = send_number(number, PATIENCE)) < 0) {
            bulkhead_printf("%s: sender: %s at %lu\n", context.info->name, word_of(sent), number);
            if (!is_news(sent))
                return 3;
        }
        if (gap)
            bulkhead_sleep(1000 * gap);
    }
    bulkhead_printf("%s: sent %lu\n", context.info->name, count);
    return 0;
}

/* Receives them, in a loop of its own with `own=1`. */
static int64_t next(bool own)
{
    if (!own)
        return receive_number(PATIENCE);
    for (;;) {
        int64_t number = receive_number(0);
        if (number != BULKHEAD_WAIT && number != BULKHEAD_APART)
            return number;
        bulkhead_disable();
        if (bulkhead_receiver_arm(&receiver) == 1)
            bulkhead_wait();
    }
}

static uint32_t receive(void)
{
    uint64_t count = limit(), last = 0, wrong = 0;
    bool own = bulkhead_arg_u64(context, "own", 0);
    bool all = bulkhead_channel(context, name)->messages != 3, any = context.incarnation > 0;
    if (bulkhead_receiver_open(context, name, &receiver) < 0)
        return 2;
    while (last < count) {
        int64_t number = next(own);
        if (number < 0) {
            bulkhead_printf("%s: receiver: %s\n", context.info->name, word_of(number));
            if (!is_news(number))
                return 3;
            /* The sender's next life counts from 1 again. */
            last = 0;
        } else {
            bool follows = all ? (uint64_t)number == last + 1 : (uint64_t)number > last;
            wrong += number == 0 || (!follows && !any);
            last = (uint64_t)number;
            any = false;
        }
    }
    bulkhead_printf("%s: received up to %lu, %lu wrong\n", context.info->name, last, wrong);
    if (bulkhead_receiver_interrupts(&receiver))
        bulkhead_printf("%s: woken %lu times\n", context.info->name, bulkhead_receiver_interrupts(&receiver));
    return wrong ? 1 : 0;
}

/* One call; whether it got a message through, and whether the session is spoilt. */
static void step(bool sends, uint64_t number, int64_t millis, uint64_t *messages, bool *spoilt)
{
    int64_t done = sends ? send_number(number, millis) : receive_number(millis);
    *messages += done >= 0;
    *spoilt |= done == BULKHEAD_CORRUPTED;
}

static bool open(bool sends)
{
    return (sends ? bulkhead_sender_open(context, name, 0, &sender)
                  : bulkhead_receiver_open(context, name, &receiver)) == 0;
}

/* Uses its end in each of `count` periods of 10 ms, and keeps to them, whoever is at the other end: by many calls, or
 * with `wait=MILLISECONDS` by some that wait as long. */
static uint32_t victim(void)
{
    enum { PERIOD = 10000000 };
    const int64_t wait = (int64_t)bulkhead_arg_u64(context, "wait", 0);
    const int calls = wait ? 4 : 64;
    uint64_t count = bulkhead_arg_u64(context, "count", 0), missed = 0, messages = 0, corrupted = 0;
    bool sends = bulkhead_channel(context, name)->writable;
    uint64_t release = bulkhead_counter(), waits = 0;
    if (!open(sends))
        return 2;
    for (uint64_t number = 0; number < count; number++) {
        bool spoilt = false;
        for (int call = 0; call < calls; call++) {
            uint64_t begun = bulkhead_counter();
            step(sends, number, wait, &messages, &spoilt);
            waits += wait && bulkhead_nanos(bulkhead_counter() - begun) >= 1000000 * (uint64_t)wait;
            /* Where cores take turns in an emulator, here is one's end: the peer acts between any two calls. */
            __asm__ volatile("pause");
        }
        corrupted += spoilt;
        /* A spoilt sender goes on in a new session, and now and then either end begins anew altogether. */
        if (spoilt && sends)
            bulkhead_sender_reset(&sender);
        if (number % 16 == 15 && !open(sends))
            return 3;
        release += bulkhead_ticks(PERIOD);
        missed += bulkhead_counter() >= release;
        bulkhead_sleep_until(release);
    }
    bulkhead_printf("%s: victim missed %lu of %lu; %s messages, %s corrupted, %s waits\n", context.info->name, missed,
                    count, messages ? "some" : "no", corrupted ? "some" : "no", waits ? "some" : "no");
    return missed || !messages;
}

/* What is no end is refused, what the manifest does not give, and what does not fit. */
static uint32_t refuse(void)
{
    static bulkhead_sender never, copied;
    static bulkhead_receiver other, there;
    uint8_t bytes[ROOM];
    bool sends = bulkhead_channel(context, name)->writable;
    int wrong = sends ? bulkhead_receiver_open(context, name, &other) : bulkhead_sender_open(context, name, 0, &never);
    if (wrong != BULKHEAD_MISFIT || bulkhead_sender_open(context, "nobody", 0, &never) != BULKHEAD_OPEN)
        return 2;
    if (bulkhead_send(&never, bytes, 1, -1) != BULKHEAD_ARGUMENT ||
        bulkhead_receive(&other, bytes, ROOM, -1) != BULKHEAD_ARGUMENT || bulkhead_send(NULL, bytes, 1, -1) != BULKHEAD_ARGUMENT)
        return 3;
    if (!sends) {
        if (bulkhead_receiver_open(context, name, &there) < 0 || bulkhead_receiver_longest(&there) != sizeof(struct note))
            return 5;
        /* Too short a buffer; none; nobody wakes it, or it may sleep; and no longer than it may. */
        int arms = bulkhead_arg_u64(context, "bell", 0) ? 1 : BULKHEAD_WAIT;
        uint64_t begun = bulkhead_counter();
        if (bulkhead_receive(&there, bytes, 1, -1) != BULKHEAD_SIZE ||
            bulkhead_receive(&there, NULL, ROOM, -1) != BULKHEAD_ARGUMENT ||
            bulkhead_receiver_arm(&there) != arms || bulkhead_receive(&there, bytes, ROOM, 20) != BULKHEAD_APART)
            return 6;
        uint64_t took = bulkhead_nanos(bulkhead_counter() - begun);
        bulkhead_receiver_close(&there);
        return took < 20000000 || took > 30000000 || bulkhead_receive(&there, bytes, ROOM, -1) != BULKHEAD_CLOSED;
    }
    if (bulkhead_sender_open(context, name, 1, &sender) != BULKHEAD_OPEN || bulkhead_sender_open(context, name, 0, &sender) < 0)
        return 7;
    copied = sender;
    if (bulkhead_send(&copied, bytes, sizeof(struct note), 0) != BULKHEAD_ARGUMENT ||
        bulkhead_send(&sender, bytes, ROOM, -1) != BULKHEAD_SIZE || bulkhead_send(&sender, bytes, 1, -1) != BULKHEAD_SIZE ||
        bulkhead_send(&sender, NULL, sizeof(struct note), -1) != BULKHEAD_ARGUMENT)
        return 8;
    bulkhead_sender_close(&sender);
    return bulkhead_send(&sender, bytes, sizeof(struct note), -1) != BULKHEAD_CLOSED;
}

static bool is_role(const char *role)
{
    const char *at = bulkhead_arg(context, "role");
    while (at && *role && *at == *role) {
        at++;
        role++;
    }
    return at && !*role && (*at == ' ' || !*at);
}

/* The value of `channel=` without what follows it. */
static const char *channel_name(void)
{
    static char text[BULKHEAD_INFO_NAME];
    const char *at = bulkhead_arg(context, "channel");
    for (size_t n = 0; at && *at && *at != ' ' && n < sizeof text - 1; n++)
        text[n] = *at++;
    return text;
}

uint32_t bulkhead_main(struct bulkhead_context given)
{
    context = given;
    name = channel_name();
    if (!bulkhead_channel(context, name))
        return 4;
    uint32_t code = is_role("send")      ? send()
                    : is_role("receive") ? receive()
                    : is_role("victim")  ? victim()
                    : is_role("refuse")  ? refuse()
                                         : 4;
    if (code == 0 && context.incarnation + 1 < bulkhead_arg_u64(context, "lives", 1))
        bulkhead_restart();
    return code;
}
