/* The smallest bare guest in C: says who it is, sleeps, starts its other cores,
 * exits. SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead.h>

static uint32_t up;

static void other(struct bulkhead_context context, uint32_t index)
{
    (void)context;
    (void)index;
    __atomic_fetch_add(&up, 1, __ATOMIC_RELAXED);
}

static uint32_t interrupts;

__attribute__((target("general-regs-only"))) static void count(struct bulkhead_frame *frame, uint64_t now)
{
    (void)frame;
    (void)now;
    __atomic_fetch_add(&interrupts, 1, __ATOMIC_RELAXED);
}

/* Lets a 16550's empty transmitter raise its line, if there is one; how often it came. */
static uint32_t provoke(struct bulkhead_context context)
{
    uint16_t port = (uint16_t)bulkhead_arg_u64(context, "port", 0);
    uint32_t line = (uint32_t)bulkhead_arg_u64(context, "line", 0);
    if (!port)
        return 1;
    bulkhead_line_attach(line, bulkhead_core_id(), 0x60, count);
    bulkhead_outb(port + 4, 0xB);
    bulkhead_outb(port + 1, 2);
    bulkhead_sleep(1000000);
    bulkhead_outb(port + 1, 0);
    bulkhead_line_mask(line);
    bulkhead_printf("hello-c: %u interrupt(s) from the port\n", interrupts);
    return interrupts;
}

uint32_t bulkhead_main(struct bulkhead_context context)
{
    const struct bulkhead_info *info = context.info;
    bulkhead_printf("hello from %s in C, incarnation %lu, %lu MiB, %u core(s)\n", info->name,
                    context.incarnation, info->memory >> 20, info->cores);

    uint64_t due = bulkhead_counter() + bulkhead_ticks(1000000);
    bulkhead_sleep_until(due);
    uint64_t late = bulkhead_nanos(bulkhead_counter() - due);
    bulkhead_printf("hello-c: slept 1 ms, late by %lu ns\n", late);

    struct bulkhead_fault fault = bulkhead_catch((void (*)(void *))(1ul << 63), NULL);
    bulkhead_printf("hello-c: caught exception %u\n", fault.vector);

    for (uint32_t i = 1; i < info->cores; i++)
        if (!bulkhead_start_core(context, i, other))
            return 2;
    if (provoke(context) != 1)
        return 3;
    return fault.vector == 13 && late < bulkhead_arg_u64(context, "late", 100000) ? 0 : 1;
}
