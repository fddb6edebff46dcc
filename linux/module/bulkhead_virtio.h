/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the parts of the module know of a device: session.c, which follows the two sides'
 * lives, notify.c, which wakes them, spin.c, which looks, device.c, which a driver calls,
 * mirror.c, which carries what is in the queues, and block.c, which knows disks.
 */
#ifndef BULKHEAD_VIRTIO_H
#define BULKHEAD_VIRTIO_H

#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ring.h>
#include <linux/workqueue.h>

#include "adaptive.h"
#include "layout.h"

/* Buffers in a section begin at multiples of so many bytes. */
#define GRANULE 1024

enum { ABSENT, OPEN, CLOSED };

/* A queue's share of a section: from a granule on. */
struct bh_pool {
	unsigned long *taken;
	unsigned int first, granules, next;
};

/* What became of a chain that the driver made available: one area in each section. */
struct bh_chain {
	u32 out, out_len, in, in_len;
	bool live;
	/* The last byte of the driver's that the device may write, if any: of a disk's request its status. */
	u8 *last;
	/* Among those without an answer, the oldest first; when it was made. */
	struct list_head entry;
	unsigned long since;
};

/*
 * Queues share nothing but the session. Each has its part of both sections, so that its
 * requests never wait for room that others take, and a lock of its own for all that is here.
 */
struct bh_queue {
	spinlock_t lock;
	struct bh_device *bh;
	struct virtqueue *vq;
	struct bh_pool out, in;
	/* The driver's queue, which nobody else sees, and its memory. */
	struct vring ring;
	void *pages;
	size_t size;
	/* The mirror: descriptors and `avail` in the own section, `used` in the other's. */
	struct vring_desc *desc;
	struct vring_avail *avail;
	const struct vring_used *used;
	/* How far the driver's `avail` was taken, the device's written, its `used` seen, and the driver's written. */
	u16 num, taken, offered, seen, given;
	/* A network card's of what it receives: packets over several chains, of which so many of one are still to come. */
	bool receives, merged;
	u16 rest;
	/*
	 * Its driver spins until the device has used what it was given, and cannot take it
	 * back: so it has that back as soon as it is copied, and no device side can hold it.
	 */
	bool copied;
	/*
	 * A disk's: the last byte that the device writes is its status. A disk's or a card's:
	 * chains outlive the device side. A disk's, or what a card sends: they end with an
	 * error, or unsent, when no answer is to come any more; a chain that has, so that the
	 * driver is to be told.
	 */
	bool answers, kept, ends, failed;
	struct bh_chain *chains;
	struct list_head waiting;
};

/* A thread that looks at a disk; `lock` is for the time of the next look. */
struct bh_spin {
	struct task_struct *thread;
	/* Held while it looks. */
	struct mutex looks;
	spinlock_t lock;
	struct bh_adaptive adaptive;
	/* When the wait for the device began. */
	u64 begun;
	/* It looks for a fixed time; it looks now; no answer is awaited. */
	bool fixed, awake, idle;
};

struct bh_device {
	struct pci_dev *pci;
	u8 __iomem *registers;
	u8 *mine;
	const u8 *theirs;
	u32 section;
	/* How it is woken (ivshmem's NOTIFY), by which each side rings the other one; the interrupt, 0: it looks. */
	u32 notify;
	bool rings;
	int irq;
	/* Whether the queues are in use, and the timer. */
	spinlock_t lock;
	/* What the driver has chosen, and when it is said: its own words, and those after a pause. */
	struct mutex life;
	/* What it rang for last, and how it asked to be woken last. */
	u64 rung, armed;
	/* What the device side said of itself when that was looked at last, and when. */
	u64 heard;
	unsigned long watched;
	/* Looks since then. */
	unsigned int watches;
	u32 epoch, peer, refused;
	/*
	 * The device outlives its side: that is away, since when. No answer is to come: all
	 * requests fail, and no packet waits. The module leaves it. A queue looks at these under its lock; whoever changes one
	 * takes each queue's lock afterwards, and then no queue is at work by the old value.
	 */
	bool outlives, away, dead, leaving;
	unsigned long since;
	struct hrtimer timer;
	ktime_t interval;
	struct tasklet_struct work;
	bool running, spoilt, woken;
	struct bh_spin spin;
	struct delayed_work watch;
	struct work_struct plug;
	struct bh_virtio *virtio;
	struct bh_queue queues[BH_QUEUES];
};

/* Words of 64 bits, which both sides see whole. */
static inline u64 word(const u8 *section, u32 at)
{
	return le64_to_cpu(smp_load_acquire((const __le64 *)(section + at)));
}

static inline void set_word(struct bh_device *bh, u32 at, u64 value)
{
	smp_store_release((__le64 *)(bh->mine + at), cpu_to_le64(value));
}

static inline unsigned int phase_of(u64 hello)
{
	return hello >> 62;
}

static inline u32 epoch_of(u64 hello)
{
	return hello >> 32 & BH_EPOCHS;
}

/* Whether the device side speaks of this session. */
static inline bool joined(struct bh_device *bh)
{
	u64 hello = word(bh->theirs, BH_HELLO);

	return phase_of(hello) == OPEN && epoch_of(hello) == READ_ONCE(bh->peer) &&
	       ((u32)hello & BH_EPOCHS) == READ_ONCE(bh->epoch);
}

/* Bytes of a disk's request before what is written: kind, reserved, sector (virtio 1.2, 5.2.6). */
#define BH_HEADER 16

/* Bytes that the places of a disk's headers take, in granules. */
static inline u32 headers(u32 num)
{
	return round_up(num * BH_HEADER, GRANULE);
}

/* Bytes of a section's areas together, for each of so many queues. */
static inline u32 room(u32 section, unsigned int queues)
{
	return (section - BH_POOL) / GRANULE / queues * GRANULE;
}

/*
 * The areas of a section that queue `n` has of `of` queues, without the first `kept` bytes, which are
 * granules. -ENOMEM; -EINVAL: there is no more than that.
 */
int bh_pool_init(struct bh_pool *pool, u32 section, unsigned int n, unsigned int of, u32 kept);
/* Makes what the driver made available so to the device; how many chains. */
unsigned int bh_take(struct bh_queue *q);
/* Gives the driver back what the device has used, if the session is this one; how many chains. */
unsigned int bh_drain(struct bh_queue *q);
/* Whether the device says that it has used a chain of a queue that is in use. */
bool bh_pending(const struct bh_device *bh);
/* Makes what has no answer available once more, in its order, to a new session. */
void bh_again(struct bh_queue *q);
/* Whether a disk's request has waited for longer than so many jiffies. */
bool bh_late(struct bh_queue *q, unsigned long limit);

/* Features of a disk that are passed on. */
u64 bh_block_features(void);
/*
 * Makes a disk's configuration for its driver of what the device side says; or why not. It
 * lowers the number of queues to those that a driver here will use.
 */
const char *bh_block_config(struct virtio_blk_config *to, const struct virtio_blk_config *from,
			    u64 features, unsigned int *queues, const u16 *sizes, u32 section);

#endif
