/* A copy of a flight controller in C: what guests/copy does, by another language, compiler and floating point unit.
 * The ends of its channels alone are the code of the others (sdk/c). Built with PLANTED it has faults (fault.h).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include "law.h"
#include <bulkhead-channel.h>

/* As crates/testing/flight/src/copies.rs has them. */
enum { PERIOD_NS = 1000000, COPIES_NS = 60000, READY = 4 };

struct sensed {
    uint64_t release;
    struct input input;
};
struct made {
    uint64_t release;
    struct value value;
};
struct agreed {
    uint64_t release, state[STATE];
};

static struct bulkhead_context context;
static bulkhead_receiver sensors, agreement;
static bulkhead_sender claims;
/* State behind the last release that this copy served, and its number. */
static uint64_t own[STATE], own_release;
static uint64_t period;

#ifdef PLANTED
#include "fault.h"
#else
static void plan(void) {}
static void sleep_until(uint64_t due) { bulkhead_sleep_until(due); }
static void spoil(struct made *made) { (void)made; }
#endif

/* Reads what is newer than before; false: there is nothing of the writer's present life. */
static bool newest(bulkhead_receiver *from, void *message, size_t len, bool known)
{
    for (int look = 0; look < 3; look++) {
        int64_t got = bulkhead_receive(from, message, len, 0);
        if (got == BULKHEAD_WAIT)
            return known;
        known = got == (int64_t)len;
        if (known)
            return true;
    }
    return false;
}

/* The state that a release begins with, as crates/channel/voter/src/start.rs decides. */
static void begin(uint64_t release, const struct agreed *agreed, bool known, uint64_t *state)
{
    bool keeps = own_release != 0 && own_release == release - 1;
    const uint64_t *from = NULL;
    known = known && (agreed->release == 0 || agreed->release < release);
    if (!known)
        from = keeps ? own : NULL;
    else if (agreed->release != 0)
        from = keeps && agreed->release == release - 1 ? own : agreed->state;
    fresh(state);
    for (int n = 0; from && n < STATE; n++)
        state[n] = from[n];
}

static bool open(void)
{
    const struct bulkhead_window *window = context.info->window, *claim = NULL;
    for (uint32_t n = 0; n < context.info->windows; n++)
        if (window[n].kind == 0 && window[n].writable)
            claim = window + n;
    return claim && bulkhead_sender_open(context, claim->name, 0, &claims) == 0 &&
           bulkhead_receiver_open(context, "sensors", &sensors) == 0 &&
           bulkhead_receiver_open(context, "agreed", &agreement) == 0;
}

/* The first release of which the instant `offset` ticks behind its beginning is still to come. */
static uint64_t next(uint64_t now, uint64_t offset) { return now < offset ? 0 : (now - offset) / period + 1; }

uint32_t bulkhead_main(struct bulkhead_context given)
{
    static struct sensed sensed;
    static struct agreed agreed;
    static struct made made;
    bool seen = false, known = false;
    context = given;
    period = bulkhead_ticks(PERIOD_NS);
    uint64_t offset = bulkhead_ticks(COPIES_NS);
    if (!open()) {
        bulkhead_printf("copy: it lacks a channel\n");
        return 2;
    }
    bulkhead_printf("copy: life %lu, in C\n", context.incarnation);
    plan();
    for (uint64_t served = 0;;) {
        uint64_t release = next(bulkhead_counter(), offset), state[STATE];
        sleep_until(release * period + offset);
        seen = newest(&sensors, &sensed, sizeof sensed, seen);
        known = newest(&agreement, &agreed, sizeof agreed, known);
        if (!seen || sensed.release != release)
            continue;
        begin(release, &agreed, known, state);
        made.release = release;
        law(state, &sensed.input, &made.value);
        for (int n = 0; n < STATE; n++)
            own[n] = made.value.state[n];
        own_release = release;
        spoil(&made);
        bulkhead_send(&claims, &made, sizeof made, 0);
        if (++served == READY)
            bulkhead_ready();
    }
}
