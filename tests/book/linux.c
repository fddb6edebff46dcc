/* The same of a program's in a Linux.
 * SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <bulkhead_channel.h>
#include <err.h>

int64_t example(void);

int64_t example(void)
{
#include EXAMPLE
    return len;
}
