// SPDX-License-Identifier: GPL-2.0
/*
 * Standard virtio devices over a channel of kind "virtio" (docs/linux-module.md).
 *
 * The other side of such a channel reaches the channel's pages and nothing else of this
 * Linux. A driver's buffers lie anywhere in memory, so they cannot be what a device
 * reads and writes: this module gives each stock driver virtqueues that are private, and
 * mirrors them. What the driver makes available is copied into the own section; what the
 * device has used is checked and copied out of its section. So a driver sees nothing that
 * the other side wrote but the bytes of its messages, and those after they were copied.
 *
 * What the other side may write is read once each, checked, then used. Nothing waits for
 * it without a limit.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/if_ether.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>
#include <linux/virtio_ring.h>
#include <linux/workqueue.h>

#include "layout.h"

/*
 * How often it looks for what the device has used: while there is something, and else. Where
 * the device side rings, a look that finds nothing is the last one until then.
 */
static unsigned int poll_us = 50;
module_param(poll_us, uint, 0644);
MODULE_PARM_DESC(poll_us, "microseconds between looks at a busy device");
static unsigned int idle_us = 1000;
module_param(idle_us, uint, 0644);
MODULE_PARM_DESC(idle_us, "microseconds between looks at an idle device that does not ring, at most");

/* How often it looks, at most, whether there is a device side at all. */
#define WATCH_MS 20
/* Buffers in a section begin at multiples of so many bytes. */
#define GRANULE 1024

enum { ABSENT, OPEN, CLOSED };

struct bh_pool {
	u8 *base;
	unsigned long *taken;
	unsigned int granules, next;
};

/* What became of a chain that the driver made available: one area in each section. */
struct bh_chain {
	u32 out, out_len, in, in_len;
	bool live;
};

struct bh_queue {
	struct bh_device *bh;
	struct virtqueue *vq;
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
	struct bh_chain *chains;
};

struct bh_device {
	struct pci_dev *pci;
	u8 __iomem *registers;
	u8 *mine;
	const u8 *theirs;
	u32 section;
	/* Each side rings the other one; the interrupt by which this one is woken, 0: it looks. */
	bool rings;
	int irq;
	/* Chains, pools, the queues' positions, and whether the queues are in use. */
	spinlock_t lock;
	struct bh_pool out, in;
	/* What it rang for last, and how it asked to be woken last. */
	u64 rung, armed;
	/* What the device side said of itself when that was looked at last, and when. */
	u64 heard;
	unsigned long watched;
	u32 epoch, peer, refused;
	struct hrtimer timer;
	ktime_t interval;
	struct tasklet_struct work;
	bool running, spoilt, woken;
	struct delayed_work watch;
	struct bh_virtio *virtio;
	struct bh_queue queues[BH_QUEUES];
};

/* A virtio device: as long as one session lasts, or as somebody holds it. */
struct bh_virtio {
	struct virtio_device vdev;
	struct bh_device *bh;
	u64 features;
	unsigned int queues;
	u16 sizes[BH_QUEUES];
	u8 config[BH_CONFIG_LEN];
	u32 config_len, generation;
	u8 status;
};

static struct bh_device *of(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->bh;
}

static ktime_t micros(unsigned int n)
{
	return ns_to_ktime((u64)n * NSEC_PER_USEC);
}

/* Words of 64 bits, which both sides see whole. */
static u64 word(const u8 *section, u32 at)
{
	return le64_to_cpu(smp_load_acquire((const __le64 *)(section + at)));
}

static void set_word(struct bh_device *bh, u32 at, u64 value)
{
	smp_store_release((__le64 *)(bh->mine + at), cpu_to_le64(value));
}

static unsigned int phase_of(u64 hello)
{
	return hello >> 62;
}

static u32 epoch_of(u64 hello)
{
	return hello >> 32 & BH_EPOCHS;
}

static u32 following(u32 epoch)
{
	u32 next = (epoch + 1) & BH_EPOCHS;

	return next ? next : 1;
}

static void say_hello(struct bh_device *bh, unsigned int phase)
{
	set_word(bh, BH_HELLO, (u64)phase << 62 | (u64)bh->epoch << 32 | bh->peer);
}

/* Whether the device side speaks of this session. */
static bool joined(struct bh_device *bh)
{
	u64 hello = word(bh->theirs, BH_HELLO);

	return phase_of(hello) == OPEN && epoch_of(hello) == bh->peer &&
	       ((u32)hello & BH_EPOCHS) == bh->epoch;
}

/* Areas of a section; -1 if there is none of that length. */
static int pool_init(struct bh_pool *pool, const u8 *section, u32 len)
{
	pool->base = (u8 *)section;
	pool->granules = (len - BH_POOL) / GRANULE;
	pool->taken = bitmap_zalloc(pool->granules, GFP_KERNEL);
	return pool->taken ? 0 : -ENOMEM;
}

static long pool_take(struct bh_pool *pool, u32 len)
{
	unsigned int count = DIV_ROUND_UP(len, GRANULE);
	unsigned long at = bitmap_find_next_zero_area(pool->taken, pool->granules,
						      pool->next, count, 0);

	if (at >= pool->granules)
		at = bitmap_find_next_zero_area(pool->taken, pool->granules, 0, count, 0);
	if (at >= pool->granules)
		return -1;
	bitmap_set(pool->taken, at, count);
	pool->next = at + count;
	return BH_POOL + at * GRANULE;
}

static void pool_give(struct bh_pool *pool, u32 at, u32 len)
{
	bitmap_clear(pool->taken, (at - BH_POOL) / GRANULE, DIV_ROUND_UP(len, GRANULE));
}

/* The driver's buffers of a chain: bytes each way. Of a kernel's own making, so believed. */
static void measure(const struct vring *ring, u16 head, u32 *out, u32 *in)
{
	unsigned int i = head, n;

	*out = *in = 0;
	for (n = 0; n < ring->num; n++) {
		const struct vring_desc *desc = &ring->desc[i];
		u16 flags = le16_to_cpu((__force __le16)desc->flags);

		*(flags & VRING_DESC_F_WRITE ? in : out) += le32_to_cpu((__force __le32)desc->len);
		if (!(flags & VRING_DESC_F_NEXT))
			return;
		i = le16_to_cpu((__force __le16)desc->next);
	}
}

/* Copies from the chain's readable buffers to `to`, or `len` bytes from `from` to its writable ones. */
static void carry(const struct vring *ring, u16 head, u8 *to, const u8 *from, u32 len)
{
	unsigned int i = head, n;

	for (n = 0; n < ring->num; n++) {
		const struct vring_desc *desc = &ring->desc[i];
		u16 flags = le16_to_cpu((__force __le16)desc->flags);
		u32 bytes = le32_to_cpu((__force __le32)desc->len);
		u8 *buffer = phys_to_virt(le64_to_cpu((__force __le64)desc->addr));

		if (to && !(flags & VRING_DESC_F_WRITE)) {
			memcpy(to, buffer, bytes);
			to += bytes;
		} else if (from && (flags & VRING_DESC_F_WRITE)) {
			bytes = min(bytes, len);
			memcpy(buffer, from, bytes);
			from += bytes;
			len -= bytes;
		}
		if (!(flags & VRING_DESC_F_NEXT))
			return;
		i = le16_to_cpu((__force __le16)desc->next);
	}
}

static void describe(struct vring_desc *desc, u64 at, u32 len, u16 flags, u16 next)
{
	desc->addr = (__force __virtio64)cpu_to_le64(at);
	desc->len = (__force __virtio32)cpu_to_le32(len);
	desc->flags = (__force __virtio16)cpu_to_le16(flags);
	desc->next = (__force __virtio16)cpu_to_le16(next);
}

/* Gives the driver a chain back. It sees all of a packet, or nothing. */
static void complete_one(struct bh_queue *q, u32 head, u32 len)
{
	struct vring_used_elem *to = &q->ring.used->ring[q->given++ & (q->num - 1)];

	to->id = (__force __virtio32)cpu_to_le32(head);
	to->len = (__force __virtio32)cpu_to_le32(len);
	if (!q->rest)
		smp_store_release(&q->ring.used->idx, (__force __virtio16)cpu_to_le16(q->given));
}

/* Makes a chain of the mirror, by its first descriptor, available to the device. */
static void offer(struct bh_queue *q, u16 head)
{
	q->avail->ring[q->offered & (q->num - 1)] = (__force __virtio16)cpu_to_le16(head);
	q->offered++;
	smp_store_release(&q->avail->idx, (__force __virtio16)cpu_to_le16(q->offered));
}

/* Copies what a driver sends that does not wait for it. What finds no room is lost. */
static void copy_one(struct bh_queue *q, u16 head, u32 len)
{
	struct bh_device *bh = q->bh;
	u16 id;
	long out;

	for (id = 0; id < q->num && q->chains[id].live; id++)
		;
	if (id == q->num || !len || bh->spoilt)
		return;
	out = pool_take(&bh->out, len);
	if (out < 0)
		return;
	carry(&q->ring, head, bh->mine + out, NULL, 0);
	q->chains[id] = (struct bh_chain){ out, len, 0, 0, true };
	describe(&q->desc[id], out, len, 0, 0);
	offer(q, id);
}

/* Makes the driver's next chain available to the device. False: there is none, or no room yet. */
static bool take_one(struct bh_queue *q)
{
	struct bh_device *bh = q->bh;
	u16 idx = le16_to_cpu((__force __le16)smp_load_acquire(&q->ring.avail->idx));
	u16 slot = q->taken & (q->num - 1), head, next;
	struct bh_chain *chain;
	u32 out_len, in_len;
	long out = 0, in = 0;

	if (q->taken == idx)
		return false;
	head = le16_to_cpu((__force __le16)q->ring.avail->ring[slot]) & (q->num - 1);
	measure(&q->ring, head, &out_len, &in_len);
	if (q->copied) {
		copy_one(q, head, out_len);
		q->taken++;
		complete_one(q, head, 0);
		return true;
	}
	if (out_len)
		out = pool_take(&bh->out, out_len);
	if (out < 0)
		return false;
	if (in_len)
		in = pool_take(&bh->in, in_len);
	if (in < 0) {
		if (out_len)
			pool_give(&bh->out, out, out_len);
		return false;
	}
	if (out_len)
		carry(&q->ring, head, bh->mine + out, NULL, 0);
	chain = &q->chains[head];
	*chain = (struct bh_chain){ out, out_len, in, in_len, true };
	next = le16_to_cpu((__force __le16)q->ring.desc[head].next) & (q->num - 1);
	if (out_len)
		describe(&q->desc[head], out, out_len, in_len ? VRING_DESC_F_NEXT : 0, next);
	if (in_len)
		describe(&q->desc[out_len ? next : head], (u64)bh->section + in, in_len,
			 VRING_DESC_F_WRITE, 0);
	q->taken++;
	offer(q, head);
	return true;
}

/* The device wrote what it must not. */
static int spoil(struct bh_queue *q, const char *what, u32 value)
{
	struct bh_device *bh = q->bh;

	/* One that has begun anew meanwhile is not to blame. */
	if (joined(bh) && !bh->spoilt) {
		bh->spoilt = true;
		dev_err_ratelimited(&bh->pci->dev, "the device side spoilt queue %ld: %s %u\n",
				    (long)(q - bh->queues), what, value);
	}
	return 0;
}

/*
 * What a network card received, in the driver's buffers, where nobody can change it any
 * more. False: a packet that cannot be, of which the driver would take another number of
 * chains than is counted here.
 *
 * Kernels see to it that what a packet's header speaks of lies within the packet. 6.1 does
 * not see to it that a checksum begins in what is left of the packet once its Ethernet
 * header is taken off, and complains of itself when it sends that on. Such a header says
 * nothing any more: the packet is as one from any network (crates/virtio/src/net.rs does the
 * same).
 */
static bool received(struct bh_queue *q, u32 id, u32 len)
{
	const struct vring_desc *desc = &q->ring.desc[id];
	struct virtio_net_hdr_v1 *header = phys_to_virt(le64_to_cpu((__force __le64)desc->addr));

	if (q->rest) {
		q->rest--;
		return true;
	}
	if (len < sizeof(*header) + ETH_HLEN)
		return false;
	if (q->merged) {
		u16 buffers = le16_to_cpu((__force __le16)header->num_buffers);

		if (!buffers || buffers > q->num)
			return false;
		q->rest = buffers - 1;
	}
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM &&
	    le16_to_cpu((__force __le16)header->csum_start) < BH_IP_END) {
		header->flags = 0;
		header->gso_type = VIRTIO_NET_HDR_GSO_NONE;
	}
	return true;
}

/* Gives the driver back the next chain that the device has used; 0: none. */
static int drain_one(struct bh_queue *q)
{
	struct bh_device *bh = q->bh;
	u16 idx = le16_to_cpu((__force __le16)smp_load_acquire(&q->used->idx));
	const struct vring_used_elem *used = &q->used->ring[q->seen & (q->num - 1)];
	struct bh_chain *chain;
	u32 id, len;

	if (q->seen == idx)
		return 0;
	if ((u16)(idx - q->seen) > q->num)
		return spoil(q, "used index", idx);
	id = le32_to_cpu((__force __le32)READ_ONCE(used->id));
	len = le32_to_cpu((__force __le32)READ_ONCE(used->len));
	if (id >= q->num || !q->chains[id].live)
		return spoil(q, "used chain", id);
	chain = &q->chains[id];
	if (len > chain->in_len)
		return spoil(q, "used length", len);
	if (len)
		carry(&q->ring, id, NULL, bh->theirs + chain->in, len);
	if (q->receives && !received(q, id, len))
		return spoil(q, "packet of length", len);
	if (chain->out_len)
		pool_give(&bh->out, chain->out, chain->out_len);
	if (chain->in_len)
		pool_give(&bh->in, chain->in, chain->in_len);
	chain->live = false;
	q->seen++;
	if (!q->copied)
		complete_one(q, id, len);
	return 1;
}

/* Wakes a device side that sleeps. */
static void ring(struct bh_device *bh)
{
	u64 armed;

	if (!bh->rings)
		return;
	/* Before it looked for the last time it said that it will sleep: one of both sees the other. */
	smp_mb();
	armed = word(bh->theirs, BH_ARMED);
	if (!(armed & 1) || armed == bh->rung)
		return;
	bh->rung = armed;
	iowrite32(BH_DEVICE_PEER << 16, bh->registers + BH_DOORBELL);
}

/*
 * The lock is held for one chain at a time: with a large one it is some ten thousand
 * instructions in which nothing interrupts.
 */
static unsigned int take(struct bh_queue *q)
{
	unsigned int n;
	unsigned long flags;
	bool more = true;

	for (n = 0; more && n < q->num; n++) {
		spin_lock_irqsave(&q->bh->lock, flags);
		more = take_one(q);
		spin_unlock_irqrestore(&q->bh->lock, flags);
	}
	return n - !more;
}

static unsigned int drain(struct bh_queue *q)
{
	struct bh_device *bh = q->bh;
	unsigned int n;
	unsigned long flags;
	int more = 1;

	if (!joined(bh))
		return 0;
	for (n = 0; more && n < q->num; n++) {
		spin_lock_irqsave(&bh->lock, flags);
		more = bh->spoilt ? 0 : drain_one(q);
		spin_unlock_irqrestore(&bh->lock, flags);
	}
	return n - !more;
}

/* The driver has made something available. False breaks the queue. */
static bool notify(struct virtqueue *vq)
{
	struct bh_queue *q = vq->priv;
	struct bh_device *bh = q->bh;
	ktime_t soon = micros(poll_us);
	unsigned long flags;

	if (READ_ONCE(bh->spoilt) && !q->copied)
		return false;
	if (take(q))
		ring(bh);
	/* An answer is likely: look as often as at a busy one. A device side that rings does with it. */
	if (!bh->irq && ktime_after(READ_ONCE(bh->interval), soon)) {
		spin_lock_irqsave(&bh->lock, flags);
		bh->interval = soon;
		if (bh->running)
			hrtimer_start(&bh->timer, soon, HRTIMER_MODE_REL);
		spin_unlock_irqrestore(&bh->lock, flags);
	}
	return true;
}

/* Whether the device has done anything. */
static bool serve(struct bh_device *bh)
{
	unsigned int n, drained, all = 0;
	unsigned long flags;
	bool running;

	spin_lock_irqsave(&bh->lock, flags);
	running = bh->running;
	spin_unlock_irqrestore(&bh->lock, flags);
	for (n = 0; running && n < BH_QUEUES; n++) {
		struct bh_queue *q = &bh->queues[n];

		if (!q->vq)
			continue;
		drained = drain(q);
		/* What waited for room. */
		if (take(q))
			ring(bh);
		if (drained)
			vring_interrupt(0, q->vq);
		all += drained;
	}
	return all;
}

/* Asks to be woken, once: by another odd number each time. Whoever does looks once more. */
static void arm(struct bh_device *bh)
{
	bh->armed = (bh->armed & ~(u64)U32_MAX) | (u32)(bh->armed + 1) | 1;
	set_word(bh, BH_ARMED, bh->armed);
	/* Before a device side rings it writes what it has done: one of both sees the other. */
	smp_mb();
}

/* Has it looked whether there is a device side, but not more often than it may. */
static void watch_soon(struct bh_device *bh)
{
	unsigned long due = READ_ONCE(bh->watched) + msecs_to_jiffies(WATCH_MS), now = jiffies;

	queue_delayed_work(system_long_wq, &bh->watch, time_after(due, now) ? due - now : 0);
}

/*
 * Looks at what the device has done. It asks to be woken only when nothing was there, and
 * nobody rang, since the last look: so a device side that rings for nothing costs an
 * interrupt for each poll_us, not as many as it likes.
 */
static void look(struct tasklet_struct *work)
{
	struct bh_device *bh = container_of(work, struct bh_device, work);
	ktime_t soon = micros(poll_us), late = micros(idle_us);
	bool woken = xchg(&bh->woken, false), any = serve(bh), sleeps = false;
	unsigned long flags;

	if (bh->irq && !any && !woken) {
		arm(bh);
		any = serve(bh);
		sleeps = !any;
	}
	if (bh->irq && (bh->spoilt || word(bh->theirs, BH_HELLO) != READ_ONCE(bh->heard)))
		watch_soon(bh);
	spin_lock_irqsave(&bh->lock, flags);
	bh->interval = any || bh->irq ? soon :
					min_t(ktime_t, 2 * bh->interval, max_t(ktime_t, soon, late));
	if (bh->irq ? !sleeps : bh->running)
		hrtimer_start(&bh->timer, max_t(ktime_t, bh->interval, NSEC_PER_USEC),
			      HRTIMER_MODE_REL);
	spin_unlock_irqrestore(&bh->lock, flags);
}

static enum hrtimer_restart ticked(struct hrtimer *timer)
{
	tasklet_schedule(&container_of(timer, struct bh_device, timer)->work);
	return HRTIMER_NORESTART;
}

/* The device side rang, or its monitor, because it has ended. */
static irqreturn_t rung(int irq, void *data)
{
	struct bh_device *bh = data;

	WRITE_ONCE(bh->woken, true);
	tasklet_schedule(&bh->work);
	return IRQ_HANDLED;
}

/* Waits until a look that has begun is over. */
static void settle(struct bh_device *bh)
{
	tasklet_disable(&bh->work);
	tasklet_enable(&bh->work);
}

static void run(struct bh_device *bh, bool on)
{
	unsigned long flags;

	spin_lock_irqsave(&bh->lock, flags);
	bh->running = on;
	bh->interval = micros(poll_us);
	if (on)
		hrtimer_start(&bh->timer, bh->interval, HRTIMER_MODE_REL);
	spin_unlock_irqrestore(&bh->lock, flags);
	if (!on)
		settle(bh);
}

/*
 * A new life of the driver's: nothing of an older session counts any more. It says that it
 * is away before it clears anything: a device side in the middle of its work, which sees a
 * cleared ring, sees then why. It answers the new life when all is clear.
 */
static void reset(struct virtio_device *vdev)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);
	struct bh_device *bh = virtio->bh;
	unsigned int n;

	run(bh, false);
	virtio->status = 0;
	bh->epoch = following(bh->epoch);
	say_hello(bh, ABSENT);
	smp_wmb();
	set_word(bh, BH_STATUS, 0);
	set_word(bh, BH_ACCEPTED, 0);
	set_word(bh, BH_SIZES, 0);
	for (n = 0; n < BH_QUEUES; n++)
		memset(bh->mine + BH_AVAIL(n), 0, sizeof(u32));
	say_hello(bh, OPEN);
	ring(bh);
}

static u8 get_status(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->status;
}

static void set_status(struct virtio_device *vdev, u8 status)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);
	bool begins = status & ~virtio->status & VIRTIO_CONFIG_S_DRIVER_OK;

	virtio->status = status;
	set_word(virtio->bh, BH_STATUS, status);
	if (begins)
		run(virtio->bh, true);
	ring(virtio->bh);
}

static u64 get_features(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->features;
}

static int finalize_features(struct virtio_device *vdev)
{
	/* Of the transport's there is none but version 1. */
	vring_transport_features(vdev);
	if (!__virtio_test_bit(vdev, VIRTIO_F_VERSION_1))
		return -EINVAL;
	set_word(of(vdev), BH_ACCEPTED, vdev->features);
	return 0;
}

static void get(struct virtio_device *vdev, unsigned int offset, void *to, unsigned int len)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);

	memset(to, 0, len);
	if (offset < virtio->config_len)
		memcpy(to, virtio->config + offset, min(len, virtio->config_len - offset));
}

static void set(struct virtio_device *vdev, unsigned int offset, const void *from, unsigned int len)
{
	dev_dbg(&vdev->dev, "configuration is the device side's alone\n");
}

/* A copy: the other side cannot make a driver read it for ever. */
static u32 generation(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->generation;
}

static const char *bus_name(struct virtio_device *vdev)
{
	return pci_name(of(vdev)->pci);
}

static void del_vqs(struct virtio_device *vdev)
{
	struct bh_device *bh = of(vdev);
	unsigned int n;

	run(bh, false);
	for (n = 0; n < BH_QUEUES; n++) {
		struct bh_queue *q = &bh->queues[n];

		if (q->vq)
			vring_del_virtqueue(q->vq);
		if (q->pages)
			free_pages_exact(q->pages, q->size);
		kvfree(q->chains);
		*q = (struct bh_queue){ .bh = bh };
	}
	bitmap_zero(bh->out.taken, bh->out.granules);
	bitmap_zero(bh->in.taken, bh->in.granules);
	set_word(bh, BH_SIZES, 0);
}

static int add_vq(struct bh_virtio *virtio, struct virtqueue **vq, unsigned int n,
		  vq_callback_t *callback, const char *name, bool ctx)
{
	struct bh_device *bh = virtio->bh;
	struct bh_queue *q = &bh->queues[n];
	u16 num = virtio->sizes[n];

	if (n >= virtio->queues || !num)
		return -ENOENT;
	*q = (struct bh_queue){
		.bh = bh,
		.num = num,
		.size = vring_size(num, PAGE_SIZE),
		.desc = (void *)(bh->mine + BH_DESC(n)),
		.avail = (void *)(bh->mine + BH_AVAIL(n)),
		.used = (const void *)(bh->theirs + BH_USED(n)),
		/* Of each port the queue of what the driver sends. */
		.copied = virtio->vdev.id.device == VIRTIO_ID_CONSOLE && n % 2 == 1,
		.receives = virtio->vdev.id.device == VIRTIO_ID_NET && n % 2 == 0,
		.merged = __virtio_test_bit(&virtio->vdev, VIRTIO_NET_F_MRG_RXBUF),
	};
	q->pages = alloc_pages_exact(q->size, GFP_KERNEL | __GFP_ZERO);
	q->chains = kvcalloc(num, sizeof(*q->chains), GFP_KERNEL);
	if (!q->pages || !q->chains)
		return -ENOMEM;
	vring_init(&q->ring, num, q->pages, PAGE_SIZE);
	*vq = vring_new_virtqueue(n, num, PAGE_SIZE, &virtio->vdev, true, ctx, q->pages, notify,
				  callback, name);
	if (!*vq)
		return -ENOMEM;
	(*vq)->priv = q;
	(*vq)->num_max = num;
	q->vq = *vq;
	return 0;
}

/* The virtqueues whose names are not NULL, by any kernel's way of asking. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define ASKED struct virtqueue_info info[]
#define NAME(n) info[n].name
#define CALLBACK(n) info[n].callback
#define CONTEXT(n) info[n].ctx
#else
#define ASKED vq_callback_t *callbacks[], const char *const names[], const bool *ctx
#define NAME(n) names[n]
#define CALLBACK(n) callbacks[n]
#define CONTEXT(n) (ctx && ctx[n])
#endif

static int find_vqs(struct virtio_device *vdev, unsigned int count, struct virtqueue *vqs[], ASKED,
		    struct irq_affinity *affinity)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);
	unsigned int n, own = 0;
	u64 sizes = 0;
	int err;

	for (n = 0; n < count; n++) {
		vqs[n] = NULL;
		if (!NAME(n))
			continue;
		err = own < BH_QUEUES ? add_vq(virtio, &vqs[n], own, CALLBACK(n), NAME(n), CONTEXT(n)) :
					-ENOENT;
		if (err) {
			del_vqs(vdev);
			return err;
		}
		sizes |= (u64)virtio->sizes[own] << 16 * own;
		own++;
	}
	set_word(virtio->bh, BH_SIZES, sizes);
	return 0;
}

static const struct virtio_config_ops operations = {
	.get = get,
	.set = set,
	.generation = generation,
	.get_status = get_status,
	.set_status = set_status,
	.reset = reset,
	.find_vqs = find_vqs,
	.del_vqs = del_vqs,
	.get_features = get_features,
	.finalize_features = finalize_features,
	.bus_name = bus_name,
};

/*
 * What a device side may offer. Left out: what lets it keep a driver waiting for an answer
 * (a network card's control queue, a console's control messages), and rings that both
 * sides write to.
 */
static u64 allowed(u32 device)
{
	const u64 one = 1;

	switch (device) {
	case VIRTIO_ID_NET:
		return one << VIRTIO_F_VERSION_1 | one << VIRTIO_NET_F_CSUM |
		       one << VIRTIO_NET_F_GUEST_CSUM | one << VIRTIO_NET_F_MTU |
		       one << VIRTIO_NET_F_MAC | one << VIRTIO_NET_F_GUEST_TSO4 |
		       one << VIRTIO_NET_F_GUEST_TSO6 | one << VIRTIO_NET_F_HOST_TSO4 |
		       one << VIRTIO_NET_F_HOST_TSO6 | one << VIRTIO_NET_F_MRG_RXBUF |
		       one << VIRTIO_NET_F_STATUS;
	case VIRTIO_ID_CONSOLE:
		return one << VIRTIO_F_VERSION_1 | one << VIRTIO_CONSOLE_F_SIZE;
	default:
		return 0;
	}
}

/* Copies what the device side says of its device, and looks whether that can be. */
static const char *learn(struct bh_device *bh, struct bh_virtio *virtio)
{
	u64 kind = word(bh->theirs, BH_DEVICE), sizes = word(bh->theirs, BH_SIZES);
	u64 config = word(bh->theirs, BH_CONFIG_WORD);
	unsigned int n;

	virtio->vdev.id.device = (u32)kind;
	virtio->vdev.id.vendor = BH_VENDOR;
	virtio->queues = kind >> 32;
	if (!allowed(virtio->vdev.id.device))
		return "a kind of device that is not served";
	virtio->features = word(bh->theirs, BH_OFFERED) & allowed(virtio->vdev.id.device);
	if (!(virtio->features >> VIRTIO_F_VERSION_1 & 1))
		return "a device of before virtio 1.0";
	if (!virtio->queues || virtio->queues > BH_QUEUES)
		return "too many queues, or none";
	for (n = 0; n < virtio->queues; n++) {
		u16 size = sizes >> 16 * n;

		if (size < 2 || size > BH_NUM || !is_power_of_2(size))
			return "a queue of a size that cannot be";
		virtio->sizes[n] = size;
	}
	virtio->config_len = (u32)config;
	if (virtio->config_len > BH_CONFIG_LEN)
		return "too long a configuration";
	memcpy(virtio->config, bh->theirs + BH_CONFIG, virtio->config_len);
	return NULL;
}

static void release(struct device *dev)
{
	kfree(container_of(dev, struct bh_virtio, vdev.dev));
}

static void begin(struct bh_device *bh, u32 peer)
{
	struct bh_virtio *virtio = kzalloc(sizeof(*virtio), GFP_KERNEL);
	const char *why;
	int err;

	if (!virtio)
		return;
	bh->peer = peer;
	bh->spoilt = false;
	virtio->bh = bh;
	virtio->vdev.dev.parent = &bh->pci->dev;
	virtio->vdev.dev.release = release;
	virtio->vdev.config = &operations;
	why = learn(bh, virtio);
	if (why) {
		dev_err_ratelimited(&bh->pci->dev, "refused: %s\n", why);
		bh->refused = peer;
		kfree(virtio);
		return;
	}
	bh->virtio = virtio;
	err = register_virtio_device(&virtio->vdev);
	if (err) {
		dev_err_ratelimited(&bh->pci->dev, "no virtio device: %d\n", err);
		bh->refused = peer;
		bh->virtio = NULL;
		put_device(&virtio->vdev.dev);
	}
}

static void end(struct bh_device *bh)
{
	struct bh_virtio *virtio = bh->virtio;

	if (!virtio)
		return;
	/* Nobody waits any more for what will not come. */
	virtio_break_device(&virtio->vdev);
	unregister_virtio_device(&virtio->vdev);
	bh->virtio = NULL;
	bh->epoch = following(bh->epoch);
	say_hello(bh, OPEN);
	ring(bh);
}

static void watch(struct work_struct *work)
{
	struct bh_device *bh = container_of(work, struct bh_device, watch.work);
	u64 hello = word(bh->theirs, BH_HELLO);
	u32 peer = epoch_of(hello);
	bool open = phase_of(hello) == OPEN && peer;

	WRITE_ONCE(bh->heard, hello);
	if (bh->virtio && (!open || peer != bh->peer || bh->spoilt)) {
		dev_info_ratelimited(&bh->pci->dev, "the device is gone: its side %s\n",
				     bh->spoilt ? "spoilt the channel" :
				     open	? "began anew" :
						  "left");
		if (bh->spoilt)
			bh->refused = bh->peer;
		end(bh);
	}
	if (!bh->virtio && open && peer != bh->refused)
		begin(bh, peer);
	WRITE_ONCE(bh->watched, jiffies);
	/* What could not begin for want of memory is tried again. */
	if (!bh->irq || (open && !bh->virtio && peer != bh->refused))
		queue_delayed_work(system_long_wq, &bh->watch, msecs_to_jiffies(WATCH_MS));
}

/* The size of a section, from the capability that comes first; the second one tells the doorbells. */
static int configuration(struct bh_device *bh)
{
	int at = pci_find_capability(bh->pci, PCI_CAP_ID_VNDR);
	u32 low, high, notify = 0;
	u8 len;

	if (!at || pci_read_config_dword(bh->pci, at + BH_CAP_SECTION, &low) ||
	    pci_read_config_dword(bh->pci, at + BH_CAP_SECTION + 4, &high))
		return -ENODEV;
	if (high || low < BH_POOL + GRANULE ||
	    pci_resource_len(bh->pci, 2) < 2ULL * low + PAGE_SIZE)
		return -EINVAL;
	bh->section = low;
	at = pci_find_next_capability(bh->pci, at, PCI_CAP_ID_VNDR);
	if (at && !pci_read_config_byte(bh->pci, at + 2, &len) && len >= BH_CAP_NOTIFY + 4)
		pci_read_config_dword(bh->pci, at + BH_CAP_NOTIFY, &notify);
	bh->rings = notify != 0;
	return 0;
}

static int map(struct bh_device *bh)
{
	struct pci_dev *pci = bh->pci;
	u8 *memory;
	int err = configuration(bh);

	if (err)
		return dev_err_probe(&pci->dev, err, "a configuration that cannot be\n");
	err = pcim_enable_device(pci);
	if (err)
		return err;
	err = pci_request_regions(pci, KBUILD_MODNAME);
	if (err)
		return dev_err_probe(&pci->dev, err, "somebody else has it\n");
	bh->registers = pcim_iomap(pci, 0, 0);
	if (!bh->registers)
		return -ENOMEM;
	/* The device side's function is for user space. */
	if (ioread32(bh->registers + BH_ID) != 0)
		return -ENODEV;
	memory = devm_memremap(&pci->dev, pci_resource_start(pci, 2), pci_resource_len(pci, 2),
			       MEMREMAP_WB);
	if (IS_ERR(memory))
		return dev_err_probe(&pci->dev, PTR_ERR(memory), "cannot map the channel\n");
	/* First the page of the peers' states. */
	bh->mine = memory + PAGE_SIZE;
	bh->theirs = bh->mine + bh->section;
	return 0;
}

/* Has the device side wake this one. */
static int wake(struct bh_device *bh)
{
	int err = pci_alloc_irq_vectors(bh->pci, 1, 1, PCI_IRQ_MSIX);

	if (err < 0)
		return err;
	pci_set_master(bh->pci);
	bh->irq = pci_irq_vector(bh->pci, 0);
	/* An epoch of this life: no number of an earlier one comes again. */
	bh->armed = (u64)bh->epoch << 32;
	set_word(bh, BH_ARMED, bh->armed);
	err = request_irq(bh->irq, rung, 0, KBUILD_MODNAME, bh);
	if (err) {
		bh->irq = 0;
		pci_free_irq_vectors(bh->pci);
		return err;
	}
	/* Now one comes unasked. */
	iowrite32(1, bh->registers + BH_CONTROL);
	return 0;
}

/* Nobody wakes it any more. */
static void hush(struct bh_device *bh)
{
	if (!bh->irq)
		return;
	iowrite32(0, bh->registers + BH_CONTROL);
	free_irq(bh->irq, bh);
	pci_free_irq_vectors(bh->pci);
	bh->irq = 0;
	settle(bh);
}

static int probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct bh_device *bh = devm_kzalloc(&pci->dev, sizeof(*bh), GFP_KERNEL);
	u64 hello;
	int err;

	if (!bh)
		return -ENOMEM;
	bh->pci = pci;
	err = map(bh);
	if (err)
		return err;
	spin_lock_init(&bh->lock);
	hrtimer_init(&bh->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	bh->timer.function = ticked;
	tasklet_setup(&bh->work, look);
	INIT_DELAYED_WORK(&bh->watch, watch);
	err = pool_init(&bh->out, bh->mine, bh->section);
	if (!err)
		err = pool_init(&bh->in, bh->theirs, bh->section);
	if (err) {
		bitmap_free(bh->out.taken);
		return err;
	}
	/* Of a page that was cleared the other side may remember more. */
	hello = word(bh->mine, BH_HELLO);
	bh->epoch = epoch_of(hello) ? epoch_of(hello) : (u32)word(bh->theirs, BH_HELLO) & BH_EPOCHS;
	bh->epoch = following(bh->epoch);
	say_hello(bh, OPEN);
	pci_set_drvdata(pci, bh);
	err = bh->rings ? wake(bh) : 0;
	if (err)
		dev_warn(&pci->dev, "no interrupt (%d): it looks from time to time\n", err);
	queue_delayed_work(system_long_wq, &bh->watch, 0);
	return 0;
}

static void remove(struct pci_dev *pci)
{
	struct bh_device *bh = pci_get_drvdata(pci);

	hush(bh);
	cancel_delayed_work_sync(&bh->watch);
	end(bh);
	/* A look may start the timer, the timer a look: now neither goes on. */
	tasklet_kill(&bh->work);
	hrtimer_cancel(&bh->timer);
	tasklet_kill(&bh->work);
	say_hello(bh, CLOSED);
	ring(bh);
	bitmap_free(bh->out.taken);
	bitmap_free(bh->in.taken);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(BH_VENDOR, BH_FUNCTION), .class = BH_CLASS, .class_mask = 0xFFFFFF },
	{}
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver bh_driver = {
	.name = KBUILD_MODNAME,
	.id_table = ids,
	.probe = probe,
	.remove = remove,
};
module_pci_driver(bh_driver);

MODULE_DESCRIPTION("Standard virtio devices over Bulkhead's channels");
MODULE_LICENSE("GPL");
