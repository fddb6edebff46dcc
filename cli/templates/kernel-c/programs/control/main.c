/* A control loop: every millisecond a step.
 *
 * Arguments: releases=N, how many. */
#include <bulkhead-program.h>

enum { PERIOD_NS = 1000000 };

/* Returns the sandbox's exit code. */
int main(void)
{
    uint64_t releases = bulkhead_arg_u64("releases", 200), late = 0, position = 0;
    uint32_t timer = bulkhead_waits("timer");
    uint64_t due = bulkhead_now() + PERIOD_NS;
    bulkhead_ready();
    for (uint64_t release = 0; release < releases; release++) {
        if (bulkhead_sleep_until(timer, due) != BULKHEAD_OK)
            return 1;
        due += PERIOD_NS;
        /* A step that is a period late has missed one. */
        late += bulkhead_now() > due;
        /* Half of the way to its goal. */
        position += (1000 - position) / 2;
    }
    bulkhead_printf("control: %lu releases, %lu missed, at %lu\n", releases, late, position);
    return late > 0;
}
