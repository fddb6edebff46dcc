/* What stands around an example in C of a bare guest's, where a page of the book has it (harness/src/test/book.rs).
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead-channel.h>

int64_t example(struct bulkhead_context context);

int64_t example(struct bulkhead_context context)
{
    struct { uint64_t words[8]; } order = { { 0 } };
    int64_t len = 0;

#include EXAMPLE
    return len;
}
