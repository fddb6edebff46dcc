// SPDX-License-Identifier: GPL-2.0
/*
 * The mirror: what a driver makes available is copied into the own section, what the
 * device has used is checked and copied out of its section. A queue's chains and pools are
 * changed under its lock, and no other queue has them; nothing here waits.
 */
#include <linux/bitmap.h>
#include <linux/if_ether.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_net.h>

#include "bulkhead_virtio.h"

/* Bytes from which on a string instruction is worth its beginning. */
#define STRING 256

int bh_pool_init(struct bh_pool *pool, u32 section, unsigned int n, unsigned int of, u32 kept)
{
	unsigned int all = room(section, of) / GRANULE;

	if (kept / GRANULE >= all)
		return -EINVAL;
	pool->granules = all - kept / GRANULE;
	pool->first = n * all + kept / GRANULE;
	pool->taken = bitmap_zalloc(pool->granules, GFP_KERNEL);
	return pool->taken ? 0 : -ENOMEM;
}

/* An area of a pool; -1 if there is none of that length. */
static long pool_take(struct bh_pool *pool, u32 len)
{
	unsigned int count = DIV_ROUND_UP(len, GRANULE);
	unsigned long at;

	/* A card's queue has areas in one section alone. */
	if (!pool->taken)
		return -1;
	at = bitmap_find_next_zero_area(pool->taken, pool->granules, pool->next, count, 0);
	if (at >= pool->granules)
		at = bitmap_find_next_zero_area(pool->taken, pool->granules, 0, count, 0);
	if (at >= pool->granules)
		return -1;
	bitmap_set(pool->taken, at, count);
	pool->next = at + count;
	return BH_POOL + (pool->first + at) * GRANULE;
}

static void pool_give(struct bh_pool *pool, u32 at, u32 len)
{
	bitmap_clear(pool->taken, (at - BH_POOL) / GRANULE - pool->first, DIV_ROUND_UP(len, GRANULE));
}

/*
 * Copies data. A kernel's memcpy() moves eight bytes by two instructions on a processor without fast
 * short strings (FSRM). One string instruction moves all of a request on any processor.
 */
static void copy(u8 *to, const u8 *from, u32 len)
{
#ifdef CONFIG_X86_64
	unsigned long words = len / sizeof(u64);

	if (len >= STRING) {
		asm volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
		len %= sizeof(u64);
	}
#endif
	memcpy(to, from, len);
}

static u8 *buffer(const struct vring_desc *desc)
{
	return phys_to_virt(le64_to_cpu((__force __le64)desc->addr));
}

/*
 * The driver's buffers of a chain: bytes each way, and the last byte that a device may write, if any.
 * A kernel made the chain, so the mirror believes it.
 */
static u8 *measure(const struct vring *ring, u16 head, u32 *out, u32 *in)
{
	unsigned int i = head, n;
	u8 *last = NULL;

	*out = *in = 0;
	for (n = 0; n < ring->num; n++) {
		const struct vring_desc *desc = &ring->desc[i];
		u16 flags = le16_to_cpu((__force __le16)desc->flags);
		u32 bytes = le32_to_cpu((__force __le32)desc->len);

		if (!(flags & VRING_DESC_F_WRITE)) {
			*out += bytes;
		} else if (bytes) {
			*in += bytes;
			last = buffer(desc) + bytes - 1;
		}
		if (!(flags & VRING_DESC_F_NEXT))
			break;
		i = le16_to_cpu((__force __le16)desc->next);
	}
	return last;
}

/* Copies `len` bytes from the chain's readable buffers to `to`, or from `from` to its writable ones. */
static void carry(const struct vring *ring, u16 head, u8 *to, const u8 *from, u32 len)
{
	unsigned int i = head, n;

	for (n = 0; len && n < ring->num; n++) {
		const struct vring_desc *desc = &ring->desc[i];
		u16 flags = le16_to_cpu((__force __le16)desc->flags);
		u32 bytes = min(len, le32_to_cpu((__force __le32)desc->len));

		if (to && !(flags & VRING_DESC_F_WRITE)) {
			copy(to, buffer(desc), bytes);
			to += bytes;
			len -= bytes;
		} else if (from && (flags & VRING_DESC_F_WRITE)) {
			copy(buffer(desc), from, bytes);
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

/* Ends a disk's request with an error, or a card's packet unsent. The driver is told by the next look. */
static void fail(struct bh_queue *q, u16 head, u8 *status)
{
	if (status)
		*status = VIRTIO_BLK_S_IOERR;
	q->failed = true;
	complete_one(q, head, 0);
}

/* Makes a chain of the mirror, by its first descriptor, available to the device, unless that is away. */
static void offer(struct bh_queue *q, u16 head)
{
	if (READ_ONCE(q->bh->away))
		return;
	q->avail->ring[q->offered & (q->num - 1)] = (__force __virtio16)cpu_to_le16(head);
	q->offered++;
	smp_store_release(&q->avail->idx, (__force __virtio16)cpu_to_le16(q->offered));
}

/* Chains that are kept keep their order: the next session gets them once more. */
static void live(struct bh_queue *q, u16 id, struct bh_chain chain)
{
	q->chains[id] = chain;
	if (!q->kept)
		return;
	q->chains[id].since = jiffies;
	list_add_tail(&q->chains[id].entry, &q->waiting);
}

/* Whether this is a disk's header without data, for which a chain has a place before the areas. */
static bool bare(const struct bh_queue *q, u32 len)
{
	return q->answers && len <= BH_HEADER;
}

/* An area for what the device reads. */
static long out_take(struct bh_queue *q, u16 head, u32 len)
{
	if (!len)
		return 0;
	if (bare(q, len))
		return BH_POOL + q->out.first * GRANULE - headers(q->num) + head * BH_HEADER;
	return pool_take(&q->out, len);
}

static void out_give(struct bh_queue *q, u32 at, u32 len)
{
	if (len && !bare(q, len))
		pool_give(&q->out, at, len);
}

/* Gives up a chain's areas. */
static void settled(struct bh_queue *q, struct bh_chain *chain)
{
	out_give(q, chain->out, chain->out_len);
	if (chain->in_len)
		pool_give(&q->in, chain->in, chain->in_len);
	chain->live = false;
	if (q->kept)
		list_del(&chain->entry);
}

/* Copies what a driver sends that does not wait for it. What finds no room is lost. */
static void copy_one(struct bh_queue *q, u16 head, u32 len)
{
	struct bh_device *bh = q->bh;
	u16 id;
	long out;

	for (id = 0; id < q->num && q->chains[id].live; id++)
		;
	if (id == q->num || !len || READ_ONCE(bh->spoilt))
		return;
	out = pool_take(&q->out, len);
	if (out < 0)
		return;
	carry(&q->ring, head, bh->mine + out, NULL, len);
	live(q, id, (struct bh_chain){ out, len, 0, 0, true });
	describe(&q->desc[id], out, len, 0, 0);
	offer(q, id);
}

/* Makes the driver's next chain available to the device. False: there is none, or no room yet. */
static bool take_one(struct bh_queue *q)
{
	struct bh_device *bh = q->bh;
	u16 idx = le16_to_cpu((__force __le16)smp_load_acquire(&q->ring.avail->idx));
	u16 slot = q->taken & (q->num - 1), head, next;
	u32 out_len, in_len;
	long out, in = 0;
	u8 *last;

	if (q->taken == idx)
		return false;
	head = le16_to_cpu((__force __le16)q->ring.avail->ring[slot]) & (q->num - 1);
	last = measure(&q->ring, head, &out_len, &in_len);
	if (q->copied) {
		copy_one(q, head, out_len);
		q->taken++;
		complete_one(q, head, 0);
		return true;
	}
	/* There is never room for it, or never an answer. */
	if ((q->ends && READ_ONCE(bh->dead)) ||
	    (q->answers && DIV_ROUND_UP(max(out_len, in_len), GRANULE) > q->out.granules)) {
		q->taken++;
		fail(q, head, last);
		return true;
	}
	out = out_take(q, head, out_len);
	if (out < 0)
		return false;
	if (in_len)
		in = pool_take(&q->in, in_len);
	if (in < 0) {
		out_give(q, out, out_len);
		return false;
	}
	if (out_len)
		carry(&q->ring, head, bh->mine + out, NULL, out_len);
	live(q, head, (struct bh_chain){ out, out_len, in, in_len, true, last });
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
	if (joined(bh) && !READ_ONCE(bh->spoilt)) {
		WRITE_ONCE(bh->spoilt, true);
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
 * nothing any more: the packet is as one from any network (crates/channel/virtio/src/net.rs does the
 * same).
 */
static bool received(struct bh_queue *q, u32 id, u32 len)
{
	struct virtio_net_hdr_v1 *header = (void *)buffer(&q->ring.desc[id]);

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

/*
 * What a disk has answered, in the driver's buffers. False: it cannot be. A read that is
 * shorter than was asked for is no success: the rest would be an older request's. Nor is a
 * status success that the device does not say it has written, or a status that does not exist.
 */
static bool answered(struct bh_queue *q, u32 id, u32 len)
{
	const struct bh_chain *chain = &q->chains[id];
	const u8 *from = q->bh->theirs + chain->in;
	u8 said;

	if (!chain->last)
		return true;
	said = READ_ONCE(from[chain->in_len - 1]);
	if (said > VIRTIO_BLK_S_UNSUPP || (said == VIRTIO_BLK_S_OK && len != chain->in_len))
		return false;
	if (len == chain->in_len)
		carry(&q->ring, id, NULL, from, len - 1);
	*chain->last = said;
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
	if (q->answers && !answered(q, id, len))
		return spoil(q, "answer of length", len);
	if (!q->answers && len)
		carry(&q->ring, id, NULL, bh->theirs + chain->in, len);
	if (q->receives && !received(q, id, len))
		return spoil(q, "packet of length", len);
	settled(q, chain);
	q->seen++;
	if (!q->copied)
		complete_one(q, id, len);
	return 1;
}

/* Whether the driver has made a chain available that was not taken. It costs no lock. */
static bool available(const struct bh_queue *q)
{
	u16 idx = le16_to_cpu((__force __le16)smp_load_acquire(&q->ring.avail->idx));

	return READ_ONCE(q->taken) != idx;
}

/*
 * Whether the device says that it has used a chain. It costs no lock: a new session begins with no
 * chain seen, and the device hears of that session before it uses any.
 */
static bool used(const struct bh_queue *q)
{
	u16 idx = le16_to_cpu((__force __le16)smp_load_acquire(&q->used->idx));

	return READ_ONCE(q->seen) != idx;
}

bool bh_pending(const struct bh_device *bh)
{
	unsigned int n;

	for (n = 0; n < BH_QUEUES; n++)
		if (bh->queues[n].vq && used(&bh->queues[n]))
			return true;
	return false;
}

/*
 * A queue's lock is held for one chain at a time: with a large one it is some ten thousand
 * instructions in which nothing interrupts.
 */
unsigned int bh_take(struct bh_queue *q)
{
	unsigned int n;
	unsigned long flags;
	bool more = true;

	for (n = 0; more && n < q->num && available(q); n += more) {
		spin_lock_irqsave(&q->lock, flags);
		more = take_one(q);
		spin_unlock_irqrestore(&q->lock, flags);
	}
	return n;
}

/* Ends the oldest request without an answer, or the oldest packet; 0: there is none. */
static int fail_one(struct bh_queue *q)
{
	struct bh_chain *chain = list_first_entry_or_null(&q->waiting, struct bh_chain, entry);

	if (!chain)
		return 0;
	settled(q, chain);
	fail(q, chain - q->chains, chain->last);
	return 1;
}

unsigned int bh_drain(struct bh_queue *q)
{
	struct bh_device *bh = q->bh;
	unsigned int n;
	unsigned long flags;
	int more = 1;

	/* Another session of such a device is another device. */
	if (!q->kept && !joined(bh))
		return 0;
	for (n = 0; more && n < q->num && (used(q) || READ_ONCE(bh->dead)); n += more) {
		spin_lock_irqsave(&q->lock, flags);
		/* A session of what outlives one can end, and another begin, between two chains. */
		if (READ_ONCE(bh->dead) && q->ends)
			more = fail_one(q);
		else if (READ_ONCE(bh->spoilt) || READ_ONCE(bh->away) ||
			 (q->kept && !joined(bh)))
			more = 0;
		else
			more = drain_one(q);
		spin_unlock_irqrestore(&q->lock, flags);
	}
	return n;
}

/* Gives the driver the chains of a packet whose rest will not come, empty: it drops each of them. */
static void cut(struct bh_queue *q)
{
	u16 i = le16_to_cpu((__force __le16)q->ring.used->idx);

	if (!q->rest)
		return;
	for (; i != q->given; i++)
		q->ring.used->ring[i & (q->num - 1)].len = 0;
	q->rest = 0;
	smp_store_release(&q->ring.used->idx, (__force __virtio16)cpu_to_le16(q->given));
	q->failed = true;
}

void bh_again(struct bh_queue *q)
{
	struct bh_chain *chain;
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	q->offered = 0;
	q->seen = 0;
	if (q->kept && q->vq)
		cut(q);
	if (q->kept)
		list_for_each_entry(chain, &q->waiting, entry)
			offer(q, chain - q->chains);
	spin_unlock_irqrestore(&q->lock, flags);
}

bool bh_late(struct bh_queue *q, unsigned long limit)
{
	struct bh_chain *oldest = NULL;
	unsigned long flags;
	bool late;

	spin_lock_irqsave(&q->lock, flags);
	if (q->answers)
		oldest = list_first_entry_or_null(&q->waiting, struct bh_chain, entry);
	late = oldest && time_after(jiffies, oldest->since + limit);
	spin_unlock_irqrestore(&q->lock, flags);
	return late;
}
