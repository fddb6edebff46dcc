/* Between the portable C runtime of bare guests (bulkhead.c, pci.c) and an architecture's part of it: a file in
 * sdk/c/arch defines these, and the functions of bulkhead.h that bulkhead.c and pci.c leave out.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_ARCH_H
#define BULKHEAD_ARCH_H

#include <bulkhead.h>

/* The runtime's: the information page, and the handler of an interrupt or exception. */
extern const struct bulkhead_info *bulkhead_own_info;
bulkhead_handler bulkhead_handler_of(uint8_t number);

/* Prepares calls, interrupts and the timer of the first core. */
void bulkhead_arch_setup(void);
/* Masks interrupts and sleeps for ever. */
_Noreturn void bulkhead_arch_stop(void);
/* Keeps interrupts out; whether they were let in. */
bool bulkhead_arch_mask(void);
/* a * b / c without losing the upper half; the quotient must fit. No runtime library of the compiler is linked. */
uint64_t bulkhead_arch_muldiv(uint64_t a, uint64_t b, uint64_t c);
/* Finds a device for text by its name in the argument, and prepares it; whether there is such a one. */
bool bulkhead_arch_console(const char *device);
/* Writes a byte to that device. */
void bulkhead_arch_put(uint8_t byte);
/* Address, its upper half and data of a message that raises an interrupt on a core. */
struct bulkhead_message {
    uint32_t low, high, data;
};
struct bulkhead_message bulkhead_arch_message(uint32_t core, uint8_t interrupt);

#endif
