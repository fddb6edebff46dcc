/* The C runtime of bare guests: see sdk/include/bulkhead.h, and sdk/c/arch.h for an architecture's part. Compiled with
 * -mgeneral-regs-only, because part of it runs in interrupt handlers.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "arch.h"
#include "bell.h"
#include "text.h"

/* Interrupt of bulkhead_sleep_until. */
enum { SLEEP = 0xEF };

const struct bulkhead_info *bulkhead_own_info;

/* Arguments. */

/* The place for arguments of those who create the program in a bay. Its marks let the host's packer find it, and the
 * compiler is not to know what stands there. */
static const struct {
    uint64_t mark[2];
    char args[BULKHEAD_INFO_ARGS_SIZE];
} given = {{BULKHEAD_ARGS_MARK, BULKHEAD_ARGS_MARK_END}, ""};

const char *bulkhead_arg(struct bulkhead_context context, const char *key)
{
    const char *args = given.args;
    __asm__("" : "+r"(args));
    if (*args)
        return bulkhead_find_arg(args, BULKHEAD_INFO_ARGS_SIZE, key);
    return bulkhead_find_arg(context.info->args, BULKHEAD_INFO_ARGS_SIZE, key);
}

uint64_t bulkhead_arg_u64(struct bulkhead_context context, const char *key, uint64_t otherwise)
{
    const char *text = bulkhead_arg(context, key);
    uint64_t value;
    return text && bulkhead_number(text, &value) ? value : otherwise;
}

/* Hypercalls. */

_Noreturn void bulkhead_exit(uint32_t code)
{
    bulkhead_hypercall(BULKHEAD_HYPERCALL_EXIT, code, 0, 0, 0);
    bulkhead_arch_stop();
}

_Noreturn void bulkhead_restart(void)
{
    bulkhead_hypercall(BULKHEAD_HYPERCALL_RESTART, 0, 0, 0, 0);
    bulkhead_arch_stop();
}

void bulkhead_ready(void)
{
    bulkhead_hypercall(BULKHEAD_HYPERCALL_READY, 0, 0, 0, 0);
}

uint64_t bulkhead_lock(bool locked)
{
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_LOCK, locked, 0, 0, 0);
}

uint64_t bulkhead_control(uint32_t sandbox, uint64_t request)
{
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_CONTROL, sandbox, request, 0, 0);
}

uint64_t bulkhead_status(uint32_t sandbox)
{
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_STATUS, sandbox, 0, 0, 0);
}

/* Signs of life. */

static void move_word(struct bulkhead_context context, bool on)
{
    const struct bulkhead_info *info = context.info;
    volatile uint64_t *word;
    uint64_t next;
    uint32_t index = 0;
    /* The page is there if somebody looks. */
    if (!info->alive)
        return;
    while (index < info->cores - 1 && info->core_ids[index] != bulkhead_core_id())
        index++;
    /* Each core's word is on a line of its own. */
    word = (volatile uint64_t *)(uintptr_t)(BULKHEAD_PROGRESS_GPA + 64 * index);
    next = *word + 1;
    /* 0 says that the core does not report. */
    *word = !on ? 0 : next ? next : 1;
}

void bulkhead_kick(struct bulkhead_context context)
{
    move_word(context, true);
}

void bulkhead_rest(struct bulkhead_context context)
{
    move_word(context, false);
}

uint64_t bulkhead_alive(struct bulkhead_context context)
{
    return context.info->alive * 1000;
}

/* Snapshots. */

uint64_t bulkhead_snapshot_keep(const void *at, size_t bytes)
{
    uint64_t pages = (bytes + BULKHEAD_PAGE - 1) / BULKHEAD_PAGE;
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_KEEP, (uint64_t)(uintptr_t)at, pages, 0, 0);
}

uint64_t bulkhead_snapshot_take(uint64_t changed)
{
    uint64_t word;
    do {
        word = bulkhead_hypercall(BULKHEAD_HYPERCALL_SNAPSHOT, changed, 0, 0, 0);
        changed = 0;
    } while (word == BULKHEAD_BUSY);
    return word;
}

static uint64_t kept(uint64_t offset)
{
    return *(const volatile uint64_t *)(uintptr_t)(BULKHEAD_SNAPSHOTS_GPA + offset);
}

uint64_t bulkhead_snapshot_last(struct bulkhead_context context)
{
    return context.info->snapshot ? kept(BULKHEAD_SNAPSHOT_OFFERED) : 0;
}

bool bulkhead_snapshot_read(struct bulkhead_context context, size_t page, void *to, size_t bytes)
{
    uint64_t room = context.info->snapshot / BULKHEAD_PAGE, buffer, pages, from;
    if (!bulkhead_snapshot_last(context))
        return false;
    buffer = kept(BULKHEAD_SNAPSHOT_BUFFER) & 1;
    pages = kept(BULKHEAD_SNAPSHOT_PAGES + buffer * BULKHEAD_SNAPSHOT_HEADER);
    if (pages > room || page > pages || bytes > (pages - page) * BULKHEAD_PAGE)
        return false;
    from = BULKHEAD_SNAPSHOTS_GPA + (1 + room * buffer + page) * BULKHEAD_PAGE;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return true;
}

/* Console. */

static bool has_device;

static void console_call(const char *text, size_t length)
{
    uint64_t words[3] = {0, 0, 0};
    memcpy(words, text, length);
    bulkhead_hypercall(BULKHEAD_HYPERCALL_CONSOLE, length, words[0], words[1], words[2]);
}

void bulkhead_write(const char *text, size_t length)
{
    while (!has_device && length) {
        size_t part = length < sizeof(uint64_t[3]) ? length : sizeof(uint64_t[3]);
        console_call(text, part);
        text += part;
        length -= part;
    }
    for (; length; length--, text++)
        bulkhead_arch_put((uint8_t)*text);
}

/* Interrupts and exceptions. */

static bulkhead_handler handlers[256];

void bulkhead_set_handler(uint8_t number, bulkhead_handler handler)
{
    __atomic_store_n(&handlers[number], handler, __ATOMIC_RELEASE);
}

bulkhead_handler bulkhead_handler_of(uint8_t number)
{
    return __atomic_load_n(&handlers[number], __ATOMIC_ACQUIRE);
}

/* Time. */

uint64_t bulkhead_nanos(uint64_t ticks)
{
    return bulkhead_arch_muldiv(ticks, 1000000000, bulkhead_own_info->hz);
}

uint64_t bulkhead_ticks(uint64_t nanos)
{
    return bulkhead_arch_muldiv(nanos, bulkhead_own_info->hz, 1000000000);
}

static void nothing(struct bulkhead_frame *frame, uint64_t now)
{
    (void)frame;
    (void)now;
}

void bulkhead_sleep_until(uint64_t due)
{
    bulkhead_disable();
    bulkhead_timer_interrupt(SLEEP);
    while (bulkhead_counter() < due) {
        bulkhead_arm(due);
        bulkhead_wait();
    }
    bulkhead_disarm();
}

void bulkhead_sleep(uint64_t nanos)
{
    bulkhead_sleep_until(bulkhead_counter() + bulkhead_ticks(nanos));
}

/* Doorbells of channels. */

/* How often each interrupt came; one core takes them. */
static uint64_t rung[256];

static void count_ring(struct bulkhead_frame *frame, uint64_t now)
{
    uint64_t *count = &rung[bulkhead_number_of(frame)];
    (void)now;
    __atomic_store_n(count, *count + 1, __ATOMIC_RELEASE);
}

void bulkhead_bell_answer(uint8_t interrupt)
{
    bulkhead_set_handler(interrupt, count_ring);
}

uint64_t bulkhead_bell_rung(uint8_t interrupt)
{
    return __atomic_load_n(&rung[interrupt], __ATOMIC_ACQUIRE);
}

bool bulkhead_bell_here(void)
{
    return bulkhead_core_id() == bulkhead_own_info->core_ids[0];
}

uint64_t bulkhead_bell_sleep(uint8_t interrupt, uint64_t seen, uint64_t until)
{
    const bool limited = until != UINT64_MAX;
    const bool on = bulkhead_arch_mask();
    if (limited) {
        bulkhead_timer_interrupt(SLEEP);
        bulkhead_arm(until);
    }
    /* One that came before now is not slept over, and one that comes from here on ends the sleep. */
    if (bulkhead_bell_rung(interrupt) == seen)
        bulkhead_wait();
    if (limited)
        bulkhead_disarm();
    seen = bulkhead_bell_rung(interrupt);
    if (on)
        bulkhead_enable();
    return seen;
}

/* Windows. */

static const struct bulkhead_window *window(const struct bulkhead_info *info, const char *name, uint32_t kind)
{
    for (uint32_t i = 0; i < info->windows && i < BULKHEAD_INFO_MAX_CHANNELS; i++)
        if (info->window[i].kind == kind && bulkhead_same(info->window[i].name, name))
            return &info->window[i];
    return NULL;
}

const struct bulkhead_window *bulkhead_channel(struct bulkhead_context context, const char *name)
{
    return window(context.info, name, 0);
}

const struct bulkhead_window *bulkhead_report(struct bulkhead_context context, const char *name)
{
    return window(context.info, name, 1);
}

/* Roles. */

uint64_t bulkhead_role_epoch(struct bulkhead_context context, const char *name)
{
    const struct bulkhead_window *role = window(context.info, name, BULKHEAD_INFO_ROLE);
    return role ? *bulkhead_words(role) : 0;
}

uint64_t bulkhead_role_give(void)
{
    return bulkhead_hypercall(BULKHEAD_HYPERCALL_GIVE, 0, 0, 0, 0);
}

/* Entry. */

/* The architecture's first instructions jump here. */
_Noreturn void bulkhead_start(uint64_t incarnation, const struct bulkhead_info *info)
{
    struct bulkhead_context context = {incarnation, info};
    bulkhead_own_info = info;
    bulkhead_arch_setup();
    const char *device = bulkhead_arg(context, "console");
    has_device = device && bulkhead_arch_console(device);
    bulkhead_set_handler(SLEEP, nothing);
    bulkhead_exit(bulkhead_main(context));
}
