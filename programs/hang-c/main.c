/* Moves its sandbox's progress word for a while, and goes on without: programs/hang, in C. With a guard it moves a word
 * for that.
 *
 * Arguments: kicks=N (default: for ever), every=NS: a move each so many nanoseconds; role=NAME, the last one:
 * it begins with a line on whether its sandbox has that role.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-program.h>

int main(void)
{
    uint64_t kicks = bulkhead_arg_u64("kicks", UINT64_MAX);
    uint64_t every = bulkhead_arg_u64("every", bulkhead_page()->alive / 4);
    volatile uint64_t *sign = bulkhead_sign("hang");
    const char *role = bulkhead_arg("role");
    if (role)
        bulkhead_printf("%s: role in epoch %lu\n", bulkhead_page()->name, bulkhead_role_epoch(role));
    else
        bulkhead_printf("hang-c: begins\n");
    for (uint64_t n = 0; n < kicks; n++) {
        if (sign)
            bulkhead_move(sign);
        else
            bulkhead_kick();
        for (uint64_t begun = bulkhead_now(); bulkhead_now() - begun < every;)
            ;
    }
    bulkhead_printf("hang-c: stops\n");
    for (;;)
        ;
}
