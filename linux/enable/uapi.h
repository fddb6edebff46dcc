/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* Requests to /dev/bulkhead. */
#ifndef BULKHEAD_UAPI_H
#define BULKHEAD_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* An image in memory of the caller. */
struct bh_image {
	__u64 address;
	__u64 len;
};

/*
 * 1 while an image runs, and the memory that it has. Nanoseconds of the last time that one was enabled: the longest
 * call with interrupts off, the entry of all cores into their monitors, all of it.
 */
struct bh_state {
	__u64 on;
	__u64 at;
	__u64 len;
	__u64 longest;
	__u64 entry;
	__u64 whole;
};

#define BH_ENABLE _IOW('B', 1, struct bh_image)
#define BH_DISABLE _IO('B', 2)
#define BH_STATE _IOR('B', 3, struct bh_state)

#endif
