/* Between the C runtime and the library in Rust (sdk/c/src/machine.rs); guests include bulkhead-channel.h.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_BELL_H
#define BULKHEAD_BELL_H

#include <stdbool.h>
#include <stdint.h>

/* From here on counts a channel's interrupts of this number. */
void bulkhead_bell_answer(uint8_t interrupt);
/* How often it came. */
uint64_t bulkhead_bell_rung(uint8_t interrupt);
/* Sleeps until it has come more often than `seen`, or until that time, for which the core's timer is used; UINT64_MAX
 * is no limit. May return earlier. How often it came. */
uint64_t bulkhead_bell_sleep(uint8_t interrupt, uint64_t seen, uint64_t until);
/* Whether this is the sandbox's first core, which these interrupts go to. */
bool bulkhead_bell_here(void);
/* Rings a channel's doorbell; a number that is none does nothing. */
void bulkhead_bell_ring(uint16_t bell);

#endif
