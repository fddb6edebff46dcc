/* SPDX-License-Identifier: GPL-2.0 */
/* What wakes each side (notify.c). */
#ifndef BULKHEAD_VIRTIO_NOTIFY_H
#define BULKHEAD_VIRTIO_NOTIFY_H

#include "bulkhead_virtio.h"

/* Wakes a device side that sleeps. */
void bh_ring(struct bh_device *bh);
/* The driver has made something available. False breaks the queue. */
bool bh_notify(struct virtqueue *vq);
/* Whether it looks for what the device has done. Afterwards no look by the old value goes on. */
void bh_run(struct bh_device *bh, bool on);

void bh_notify_init(struct bh_device *bh);
/* Has the device side wake this one, by an interrupt, until bh_hush(). */
int bh_listen(struct bh_device *bh);
void bh_hush(struct bh_device *bh);
/* Looks whether the device has done anything, and tells the driver. */
bool bh_serve(struct bh_device *bh);
/* Whether a disk has answered all that its driver asked. */
bool bh_caught_up(struct bh_device *bh);
/* It need not be woken: the thread looks. */
void bh_disarm(struct bh_device *bh);
/* Waits until a look that has begun is over. */
void bh_settle(struct bh_device *bh);
/* Nothing looks any more. */
void bh_notify_end(struct bh_device *bh);

#endif
