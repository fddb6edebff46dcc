/* Moves its progress word for a while, and goes on without: guests/hang, in C.
 *
 * Arguments: kicks=N (default: for ever).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead.h>

static void spin(uint64_t ticks)
{
    for (uint64_t begun = bulkhead_counter(); bulkhead_counter() - begun < ticks;)
        ;
}

uint32_t bulkhead_main(struct bulkhead_context context)
{
    uint64_t kicks = bulkhead_arg_u64(context, "kicks", UINT64_MAX), alive = bulkhead_alive(context);
    if (!alive) {
        bulkhead_printf("hang-c: nobody looks\n");
        return 1;
    }
    bulkhead_ready();
    bulkhead_printf("hang-c: begins\n");
    for (uint64_t n = 0; n < kicks; n++) {
        bulkhead_kick(context);
        spin(bulkhead_ticks(alive / 4));
    }
    bulkhead_printf("hang-c: stops\n");
    for (;;)
        ;
}
