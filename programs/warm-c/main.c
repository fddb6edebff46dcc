/* Counts, takes a snapshot of its state at each step, fails, and goes on from the last one: a part of programs/keeper's
 * program-warm, in C.
 *
 * Arguments: steps=N (40): it fails after each 20 steps until its state, in memory `count`, has so many.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-program.h>

#define WORDS 512

int main(void)
{
    const char *name = bulkhead_page()->name;
    struct bulkhead_snapshots snapshots;
    uint64_t len, last, changed;
    volatile uint64_t *state = bulkhead_memory("count", &len);
    if (!state || !bulkhead_snapshot_find(&snapshots, "keeper", "count") ||
        !bulkhead_snapshot_last(&snapshots, &last)) {
        bulkhead_printf("%s: no snapshots\n", name);
        return 9;
    }
    uint64_t pages = len / (WORDS * sizeof *state);
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t words[WORDS] = {0};
        if (last && !bulkhead_snapshot_read(&snapshots, page, words, WORDS))
            return 9;
        for (int n = 0; n < WORDS; n++)
            state[page * WORDS + n] = words[n];
    }
    bulkhead_printf("%s: from snapshot %lu at step %lu\n", name, last, state[0]);
    /* The last word of a page has the last step that changed it. */
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t since = (state[0] + pages - page) % pages;
        uint64_t step = since < state[0] ? state[0] - since : 0;
        if (state[page * WORDS + WORDS - 1] != step) {
            bulkhead_printf("%s: its state is torn\n", name);
            return 9;
        }
    }
    /* No word behind the end is read, and none of a page that is not there. */
    uint64_t word;
    if (bulkhead_snapshot_read(&snapshots, pages, &word, 1) || bulkhead_snapshot_read(&snapshots, SIZE_MAX, &word, 1))
        return 9;
    if (state[0] >= bulkhead_arg_u64("steps", 40))
        return 0;
    for (int n = 0; n < 20; n++) {
        uint64_t step = ++state[0];
        state[step % pages * WORDS + WORDS - 1] = step;
        changed = 1 | 1ull << step % pages;
        if (!bulkhead_snapshot_take(&snapshots, changed))
            return 9;
    }
    bulkhead_stop();
}
