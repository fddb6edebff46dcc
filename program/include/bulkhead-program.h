/* What a program of the kernel needs, for C: the counterpart of the Rust crate
 * bulkhead-program, with the same parts under the same names. An architecture's
 * instructions are in bulkhead-program/arch.
 *
 * Each thread of the manifest has its own copy of _Thread_local (__thread) variables, with their initial
 * values at the launch; one that begins anew finds them as it left them.
 *
 * A program defines main and is built by program/c/build.sh. It is compiled with
 * -mgeneral-regs-only: its threads have no vector registers unless the manifest says `fpu`.
 * What it may do is what its manifest says; the functions below find it by name.
 *
 * Functions that can fail return a status: BULKHEAD_OK, or a code in bits 0 to 7, the argument
 * that is meant in 8 to 15, and a detail (docs/kernel-calls.md).
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_PROGRAM_H
#define BULKHEAD_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bulkhead-kernel.h"

/* What the manifest has admitted on the core, for who has sched_control; all know the overhead. */
struct bulkhead_load {
    uint64_t share; /* parts of 2^-40 */
    uint32_t servers, overhead;
};

/* The program's page: read-only, at BULKHEAD_AT_PAGE. */
struct bulkhead_page {
    uint64_t magic;
    char name[BULKHEAD_PAGE_NAME];
    uint64_t clock, buffers, heap, heap_len;
    uint32_t free[2]; /* empty slots: the first one, and one past the last */
    uint64_t names;
    char args[BULKHEAD_PAGE_ARGS];
    struct bulkhead_name name_of[BULKHEAD_PAGE_MAX_NAMES];
    struct bulkhead_load load;
    uint32_t sandbox[2];
    uint64_t progress, alive; /* where its progress word is, or 0; nanoseconds from a move to the next */
};

struct bulkhead_clock {
    uint64_t nanos, hz;
};

/* What of a thread's messages does not fit into registers. */
struct bulkhead_buffer {
    volatile uint64_t words[BULKHEAD_BUFFER_WORDS];
    volatile uint64_t cap, receive, reserved[2];
};

#define BULKHEAD_SAME(type, field, NAME) \
    _Static_assert(offsetof(struct bulkhead_##type, field) == BULKHEAD_##NAME, #field)
BULKHEAD_SAME(page, name, PAGE_OFFSET_NAME);
BULKHEAD_SAME(page, clock, PAGE_OFFSET_CLOCK);
BULKHEAD_SAME(page, buffers, PAGE_OFFSET_BUFFERS);
BULKHEAD_SAME(page, heap, PAGE_OFFSET_HEAP);
BULKHEAD_SAME(page, heap_len, PAGE_OFFSET_HEAP_LEN);
BULKHEAD_SAME(page, free, PAGE_OFFSET_FREE);
BULKHEAD_SAME(page, names, PAGE_OFFSET_NAMES);
BULKHEAD_SAME(page, args, PAGE_OFFSET_ARGS);
BULKHEAD_SAME(page, name_of, PAGE_OFFSET_NAME_OF);
BULKHEAD_SAME(page, load, PAGE_OFFSET_LOAD);
BULKHEAD_SAME(page, progress, PAGE_OFFSET_PROGRESS);
BULKHEAD_SAME(page, alive, PAGE_OFFSET_ALIVE);
BULKHEAD_SAME(load, overhead, LOAD_OFFSET_OVERHEAD);
BULKHEAD_SAME(clock, hz, CLOCK_OFFSET_HZ);
BULKHEAD_SAME(buffer, cap, BUFFER_OFFSET_CAP);
BULKHEAD_SAME(buffer, receive, BUFFER_OFFSET_RECEIVE);
_Static_assert(sizeof(struct bulkhead_page) == BULKHEAD_PAGE_SIZE, "page");
_Static_assert(sizeof(struct bulkhead_buffer) == BULKHEAD_BUFFER_SIZE, "buffer");

/* The program's first thread begins here; the result is the exit code of the sandbox, if the
 * manifest lets the program end it. */
#ifndef BULKHEAD_APP
int main(void);
#endif

/* Names the symbol at which a further thread begins (`entry` in the manifest), and its function,
 * which gets the thread's number in the program, from 0. */
#define BULKHEAD_THREAD(symbol, function)                                                            \
    _Noreturn void symbol(const struct bulkhead_page *page, uint64_t thread);                        \
    __attribute__((section(".threads"), used)) static void *const kept_##symbol = (void *)symbol;    \
    _Noreturn void symbol(const struct bulkhead_page *page, uint64_t thread)                         \
    {                                                                                                \
        (void)page;                                                                                  \
        bulkhead_begin(thread);                                                                      \
        bulkhead_exit((uint32_t)function((uint32_t)thread));                                         \
    }

/* Used by entries: notes the thread's number. */
void bulkhead_begin(uint64_t thread);
/* The number of the thread that asks, from 0, in the manifest's order. */
uint32_t bulkhead_thread(void);

static inline const struct bulkhead_page *bulkhead_page(void)
{
    return (const struct bulkhead_page *)BULKHEAD_AT_PAGE;
}

/* Ends the sandbox, or else the thread. */
_Noreturn void bulkhead_exit(uint32_t code);
/* The thread is over: an exception, for its fault handler. */
static inline _Noreturn void bulkhead_stop(void);

/* Text for the console: %s %c %d %u %x %p %%, and l. */
void bulkhead_write(const char *text, size_t length);
void bulkhead_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The value of the argument key=value ("" for a bare key) up to a blank, or NULL. */
const char *bulkhead_arg(const char *key);
/* The value of key=number, decimal or with 0x, or the default. */
uint64_t bulkhead_arg_u64(const char *key, uint64_t otherwise);

/* What the manifest gave: the address of a capability of a kind with at least these rights, or 0. */
uint32_t bulkhead_find(const char *name, uint8_t kind, uint8_t rights);
/* The same where it has to be there: else the program says so, and ends with 101. */
uint32_t bulkhead_need(const char *name, uint8_t kind, uint8_t rights);
static inline uint32_t bulkhead_endpoint(const char *name)
{
    return bulkhead_need(name, BULKHEAD_KIND_ENDPOINT, BULKHEAD_RIGHT_CALL);
}
static inline uint32_t bulkhead_serves(const char *name)
{
    return bulkhead_need(name, BULKHEAD_KIND_ENDPOINT, BULKHEAD_RIGHT_READ);
}
static inline uint32_t bulkhead_signals(const char *name)
{
    return bulkhead_need(name, BULKHEAD_KIND_NOTIFICATION, BULKHEAD_RIGHT_WRITE);
}
static inline uint32_t bulkhead_waits(const char *name)
{
    return bulkhead_need(name, BULKHEAD_KIND_NOTIFICATION, BULKHEAD_RIGHT_READ);
}
/* A thread's reply object, by the thread's name. */
static inline uint32_t bulkhead_reply_of(const char *thread)
{
    return bulkhead_need(thread, BULKHEAD_KIND_REPLY, 0);
}
static inline uint32_t bulkhead_manages(const char *thread)
{
    return bulkhead_need(thread, BULKHEAD_KIND_THREAD, 0);
}
static inline uint32_t bulkhead_context(const char *name)
{
    return bulkhead_need(name, BULKHEAD_KIND_CONTEXT, 0);
}
static inline uint32_t bulkhead_interrupt(const char *name)
{
    return bulkhead_need(name, BULKHEAD_KIND_INTERRUPT, 0);
}
/* Shared memory, a channel, or a device's registers ("pci:BB:DD.F:N"); NULL if it was not given. Others
 * may change it at any time: read and write it through volatile or atomic pointers. */
void *bulkhead_memory(const char *name, uint64_t *len);
/* The same of shared memory that a device of this program reaches (dma): and its first address for the device. Nothing
 * copies it, so the device sees what is written at once. NULL if no device of the program's reaches memory of that
 * name. */
void *bulkhead_memory_for_device(const char *name, uint64_t *len, uint64_t *address);

/* The epoch in which this sandbox has a role, by the role's name; 0: it has not, or the program has no channel of that
 * role. It touches the role's channels while it has the role, and begins with them anew in each epoch. */
uint64_t bulkhead_role_epoch(const char *name);

/* Moves a progress word: who looks at it sees that this goes on. */
static inline void bulkhead_move(volatile uint64_t *word)
{
    uint64_t next = *word + 1;
    /* 0 says that nothing reports. */
    *word = next ? next : 1;
}
/* Moves the progress word of the sandbox, if the manifest says `watchdog = true`: within each `alive`, nanoseconds, of
 * bulkhead_page, where the work is done that others depend on. */
static inline void bulkhead_kick(void)
{
    if (bulkhead_page()->progress)
        bulkhead_move((volatile uint64_t *)bulkhead_page()->progress);
}
/* Says that the program does not report any more, until it does again. */
static inline void bulkhead_rest(void)
{
    if (bulkhead_page()->progress)
        *(volatile uint64_t *)bulkhead_page()->progress = 0;
}
/* The word of a thread for its guard, for bulkhead_move: memory alive-THREAD; NULL if it was not given. */
volatile uint64_t *bulkhead_sign(const char *thread);

/* Snapshots: state that outlives a life of the program. It lies in shared memory that the program writes. A keeper
 * (programs/keeper) copies it into memory that the program can read and not write: STATE-kept. */
struct bulkhead_snapshots {
    uint32_t keeper; /* its endpoint */
    const void *kept;
    uint64_t kept_len;
};
/* Finds those of the state in memory of that name; false: the manifest gives no memory for them, or too little. */
bool bulkhead_snapshot_find(struct bulkhead_snapshots *snapshots, const char *keeper, const char *state);
/* Begins a life, with the number of the snapshot that it may begin with; 0: there is none. False: the keeper is gone,
 * or does not know the state. From then on all pages count as changed. */
bool bulkhead_snapshot_last(const struct bulkhead_snapshots *snapshots, uint64_t *generation);
/* Takes a snapshot, with the set of pages that have changed since the last one. The state stays as it is meanwhile.
 * False: also before bulkhead_snapshot_last. */
bool bulkhead_snapshot_take(const struct bulkhead_snapshots *snapshots, uint64_t changed);
/* Copies words of the snapshot that this life may begin with, from the start of a page on, until this life's second
 * snapshot. False: it does not have so many. */
bool bulkhead_snapshot_read(const struct bulkhead_snapshots *snapshots, size_t page, uint64_t *to, size_t words);

/* A message: label, length and whether a capability comes along; its first four words. */
struct bulkhead_message {
    uint64_t info;
    uint64_t words[BULKHEAD_REGISTER_WORDS];
};
/* What was received: of a notification its bits are the badge, and info is BULKHEAD_INFO_NOTIFIED. */
struct bulkhead_received {
    uint64_t badge;
    struct bulkhead_message message;
};
static inline uint64_t bulkhead_info(uint64_t label, uint64_t words)
{
    return label << BULKHEAD_INFO_LABEL_SHIFT | words;
}
static inline uint64_t bulkhead_label(uint64_t info)
{
    return info >> BULKHEAD_INFO_LABEL_SHIFT;
}
/* The code of a status. */
static inline uint8_t bulkhead_code(uint64_t status)
{
    return (uint8_t)status;
}
/* This thread's buffer. */
static inline struct bulkhead_buffer *bulkhead_buffer(void)
{
    return (struct bulkhead_buffer *)bulkhead_page()->buffers + bulkhead_thread();
}

/* A call into the kernel; see docs/kernel-calls.md. `named` becomes the badge. */
static inline uint64_t bulkhead_syscall(uint64_t op, uint32_t reply, uint64_t *named,
                                        struct bulkhead_message *message);

/* Sends and waits for the answer, which takes the message's place. */
static inline uint64_t bulkhead_call(uint32_t endpoint, struct bulkhead_message *message)
{
    uint64_t named = endpoint;
    return bulkhead_syscall(BULKHEAD_OP_CALL, 0, &named, message);
}
/* Sends and waits until it is received. */
static inline uint64_t bulkhead_send(uint32_t endpoint, struct bulkhead_message message)
{
    uint64_t named = endpoint;
    return bulkhead_syscall(BULKHEAD_OP_SEND, 0, &named, &message);
}
/* Sends if somebody waits for it. */
static inline uint64_t bulkhead_try_send(uint32_t endpoint, struct bulkhead_message message)
{
    uint64_t named = endpoint;
    return bulkhead_syscall(BULKHEAD_OP_NB_SEND, 0, &named, &message);
}
/* A deadline that never comes; others are nanoseconds of bulkhead_now. */
#define BULKHEAD_FOREVER UINT64_MAX
/* Waits for a message until a time. */
static inline uint64_t bulkhead_receive(uint32_t endpoint, uint32_t reply, uint64_t until,
                                        struct bulkhead_received *received)
{
    received->badge = endpoint;
    received->message = (struct bulkhead_message){.info = until};
    return bulkhead_syscall(BULKHEAD_OP_RECV, reply, &received->badge, &received->message);
}
/* Answers the last caller with received->message, and waits for the next message. */
static inline uint64_t bulkhead_reply_recv(uint32_t endpoint, uint32_t reply,
                                           struct bulkhead_received *received)
{
    received->badge = endpoint;
    return bulkhead_syscall(BULKHEAD_OP_REPLY_RECV, reply, &received->badge, &received->message);
}
/* Answers the last caller. */
static inline uint64_t bulkhead_reply(uint32_t reply, struct bulkhead_message message)
{
    uint64_t named = 0;
    return bulkhead_syscall(BULKHEAD_OP_REPLY, reply, &named, &message);
}
/* Sets a notification's bits. */
static inline void bulkhead_signal(uint32_t notification)
{
    bulkhead_try_send(notification, (struct bulkhead_message){0});
}
/* Waits for bits until a time at most, and takes them. */
static inline uint64_t bulkhead_wait(uint32_t notification, uint64_t until, uint64_t *bits)
{
    struct bulkhead_message message = {.info = until};
    *bits = notification;
    return bulkhead_syscall(BULKHEAD_OP_WAIT, 0, bits, &message);
}
/* Sleeps until a time: waits for a notification that nobody signals. */
static inline uint64_t bulkhead_sleep_until(uint32_t notification, uint64_t until)
{
    uint64_t bits, status = bulkhead_wait(notification, until, &bits);
    return bulkhead_code(status) == BULKHEAD_TIMED_OUT ? BULKHEAD_OK : status;
}
/* Calls a method of a kernel object; the answer takes the words' place. */
static inline uint64_t bulkhead_invoke(uint32_t on, uint64_t method, uint64_t words[BULKHEAD_REGISTER_WORDS])
{
    struct bulkhead_message message = {bulkhead_info(method, BULKHEAD_REGISTER_WORDS),
                                       {words[0], words[1], words[2], words[3]}};
    uint64_t status = bulkhead_call(on, &message);
    for (int n = 0; n < (int)BULKHEAD_REGISTER_WORDS; n++)
        words[n] = message.words[n];
    return status;
}
/* The next interrupt may come. */
static inline uint64_t bulkhead_acknowledge(uint32_t interrupt)
{
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {0};
    return bulkhead_invoke(interrupt, BULKHEAD_INTERRUPT_ACKNOWLEDGE, words);
}
/* Says that the sandbox has started, if the manifest lets this program do so. */
static inline void bulkhead_ready(void)
{
    uint64_t words[BULKHEAD_REGISTER_WORDS] = {0};
    bulkhead_invoke(BULKHEAD_SLOT_SANDBOX, BULKHEAD_SANDBOX_READY, words);
}
/* The counter that the page of the clock describes. */
static inline uint64_t bulkhead_counter(void);
/* Nanoseconds since the processor's start; no call is needed to read it. */
static inline uint64_t bulkhead_now(void)
{
    const struct bulkhead_clock *clock = (const struct bulkhead_clock *)BULKHEAD_AT_CLOCK;
    return (uint64_t)((unsigned __int128)bulkhead_counter() * clock->nanos >> 32);
}

#if defined(__x86_64__)
#include "bulkhead-program/arch/x86.h"
#else
#error "program/include/bulkhead-program/arch has no header for this architecture"
#endif

#endif
