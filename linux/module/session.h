/* SPDX-License-Identifier: GPL-2.0 */
/* The lives of both sides (session.c). */
#ifndef BULKHEAD_VIRTIO_SESSION_H
#define BULKHEAD_VIRTIO_SESSION_H

#include "bulkhead_virtio.h"

/*
 * How often it looks, at most, whether there is a device side at all. A side that ends and begins
 * anew is seen at once: so many looks may follow one another.
 */
#define WATCH_MS 20
#define WATCH_BURST 8

/* Says which session this side is in. */
void bh_hello(struct bh_device *bh, unsigned int phase);
/*
 * Ends the session: nothing of it counts any more. It says that it is away before it clears
 * anything: a device side in the middle of its work, which sees a cleared ring, sees then
 * why.
 */
void bh_part(struct bh_device *bh);

#endif
