/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* Requests to /dev/bulkhead. */
#ifndef BULKHEAD_UAPI_H
#define BULKHEAD_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* An image, or the name of a channel, in memory of the caller. */
struct bh_bytes {
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

#define BH_ENABLE _IOW('B', 1, struct bh_bytes)
#define BH_DISABLE _IO('B', 2)
#define BH_STATE _IOR('B', 3, struct bh_state)
/* The PCI functions of a channel come, or go: none goes while one is in use (EIO, and the log says which). */
#define BH_PLUG _IOW('B', 4, struct bh_bytes)
#define BH_UNPLUG _IOW('B', 5, struct bh_bytes)

#endif
