/* Faults planted in the copy in C, at drawn instants: guests/copy-rogue has their list, and the meaning of the
 * arguments. SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef FAULT_H
#define FAULT_H

enum kind { IN_STATE, IN_REGISTER, IN_STACK, LIES, EARLY, LATE, STALLS, DIES, DENIED, FLOODS, KINDS };
enum { VECTOR = 0x41, BUSY_NS = 150000, DEPTH = 96 };
#define NEVER UINT64_MAX

static enum kind kind = KINDS;
static uint64_t at = NEVER, drawn, middle = NEVER;
static volatile uint64_t *channel;
static uint64_t channel_words;

/* SplitMix64, as crates/testing/random has it. */
static uint64_t any(uint64_t *seed)
{
    uint64_t z = *seed += 0x9E3779B97F4A7C15ul;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ul;
    z = (z ^ z >> 27) * 0x94D049BB133111EBul;
    return z ^ z >> 31;
}

#define HANDLER __attribute__((target("general-regs-only")))

HANDLER static void flip(volatile uint64_t *word, uint64_t bit) { *word ^= 1ul << bit % 64; }

/* Strikes if it is time, and otherwise has only woken the copy. */
HANDLER static void strike(struct bulkhead_frame *frame, uint64_t now)
{
    static const uint64_t no_table[2];
    uint64_t place = drawn >> 6;
    if (now < at)
        return;
    at = NEVER;
    switch (kind) {
    case IN_STATE:
        flip(own + place % STATE, drawn);
        break;
    case IN_REGISTER: /* the frame begins with the 15 registers */
        flip((volatile uint64_t *)frame + place % 15, drawn);
        break;
    case IN_STACK:
        flip((volatile uint64_t *)(frame->rsp & ~7ul) + place % DEPTH, drawn);
        break;
    case STALLS:
        bulkhead_disarm();
        for (;;)
            bulkhead_disable();
    case DIES:
        __asm__ volatile("lidt %0\n\tud2" ::"m"(no_table));
        break;
    case DENIED:
        (void)bulkhead_read64(0x50000000);
        break;
    case FLOODS:
        for (uint64_t number = drawn;;)
            for (uint64_t n = 0; n < channel_words; n++)
                channel[n] = number = number * 0x5851F42D4C957F2Dul + 1;
    default: /* the others change messages from now on */
        break;
    }
}

static void plan(void)
{
    uint64_t gap = bulkhead_arg_u64(context, "gap", 20), from = bulkhead_arg_u64(context, "from", 0);
    uint64_t turn = bulkhead_arg_u64(context, "turn", 0), of = bulkhead_arg_u64(context, "of", 1);
    uint64_t kinds = bulkhead_arg_u64(context, "kinds", 0) & ((1ul << KINDS) - 1);
    uint64_t now = bulkhead_counter() / period;
    uint64_t window = ((now > from ? now : from) + gap - 1) / gap;
    bulkhead_set_handler(VECTOR, strike);
    bulkhead_timer_interrupt(VECTOR);
    if (!kinds || turn >= of)
        return;
    while (window % of != turn)
        window++;
    uint64_t seed = bulkhead_arg_u64(context, "seed", 1) ^ window * 0x9E3779B9;
    uint64_t left = any(&seed) % (uint64_t)__builtin_popcountl(kinds);
    while (left--)
        kinds &= kinds - 1;
    kind = (enum kind)__builtin_ctzl(kinds);
    uint64_t release = window * gap + 1 + any(&seed) % (gap / 4);
    uint64_t nanos = any(&seed) % 2 ? COPIES_NS + any(&seed) % BUSY_NS : any(&seed) % PERIOD_NS;
    drawn = any(&seed);
    at = release * period + bulkhead_ticks(nanos);
    middle = kind <= IN_STACK ? window * gap + gap / 2 : NEVER;
    const struct bulkhead_window *all = context.info->window;
    for (uint32_t n = 0; n < context.info->windows; n++)
        if (all[n].kind == 0 && all[n].writable) {
            channel = bulkhead_words(all + n);
            channel_words = all[n].size / 8;
        }
    bulkhead_printf("copy: fault %u is due in release %lu\n", kind, release);
}

static void sleep_until(uint64_t due)
{
    bulkhead_disable();
    while (bulkhead_counter() < due) {
        bulkhead_arm(due < at ? due : at);
        bulkhead_wait();
    }
    bulkhead_arm(at);
    bulkhead_enable();
    if (due / period >= middle) {
        bulkhead_printf("copy: no effect by release %lu\n", due / period);
        bulkhead_restart();
    }
}

static void spoil(struct made *made)
{
    uint64_t lie = 1 + (drawn >> 16 & 0xFFFF);
    if (at != NEVER)
        return;
    if (kind == LIES)
        made->value.motors[0] ^= lie;
    if (kind == EARLY)
        made->release += lie;
    if (kind == LATE)
        made->release--;
}

#endif
