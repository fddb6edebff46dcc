/* SPDX-License-Identifier: GPL-2.0 */
/* A thread that looks at a disk in place of an interrupt (spin.c). */
#ifndef BULKHEAD_VIRTIO_SPIN_H
#define BULKHEAD_VIRTIO_SPIN_H

#include "bulkhead_virtio.h"

void bh_spin_init(struct bh_device *bh);
/* Begins with a disk, by the manifest's `notify`, and ends with it. It waits for the thread's end. */
void bh_spin_start(struct bh_device *bh);
void bh_spin_stop(struct bh_device *bh);
/* The driver has made something available: an answer is awaited. */
void bh_spin_asked(struct bh_device *bh);
/* Somebody has found something that the device has done; `slept`: not the thread. */
void bh_spin_found(struct bh_device *bh, bool slept, bool caught_up);
/* Waits until a look of the thread's that has begun is over. */
void bh_spin_settle(struct bh_device *bh);

/* Whether the thread looks. Then nobody asks to be woken, and no timer runs. */
static inline bool bh_spins(struct bh_device *bh)
{
	return READ_ONCE(bh->spin.awake);
}

#endif
