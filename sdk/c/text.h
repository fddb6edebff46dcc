/* Between the parts of the C runtimes; programs include bulkhead.h or bulkhead-program.h.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef BULKHEAD_TEXT_H
#define BULKHEAD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *memset(void *to, int byte, size_t length);
void *memcpy(void *to, const void *from, size_t length);
/* Whether two texts are the same. */
bool bulkhead_same(const char *a, const char *b);
/* The value of key=value ("" for a bare key) in arguments of at most `length` bytes, or NULL. */
const char *bulkhead_find_arg(const char *at, size_t length, const char *key);
/* A number up to a blank or the end, decimal or with 0x; false if it is none. */
bool bulkhead_number(const char *text, uint64_t *value);
/* Each runtime has its own. */
void bulkhead_write(const char *text, size_t length);
void bulkhead_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
