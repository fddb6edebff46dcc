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
 *
 * A disk outlives its device side. Requests without an answer wait, with what they write in
 * the own section, and are offered to the next session once more, in their order. So does a
 * network card. Its packets wait for a short time, then they are lost as on any network.
 *
 * Here are the lives of both sides and what wakes them; the copies are mirror.c's.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/virtio_config.h>
#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>

#include "bulkhead_virtio.h"

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

static unsigned int revive_s = 30;
module_param(revive_s, uint, 0644);
MODULE_PARM_DESC(revive_s, "seconds to wait for a device side that is away; a disk's also for a silent one");

/* How long a card's packets wait for its device side: a kernel complains of them after 5 s. */
#define PACKETS_MS 2000

/*
 * How often it looks, at most, whether there is a device side at all; and a disk's at least. A
 * side that ends and begins anew is seen at once: so many looks may follow one another.
 */
#define WATCH_MS 20
#define WATCH_BURST 8
#define ALIVE_MS 500

/* What a device side says of its device, and what its driver sees of that. */
struct bh_description {
	u64 features;
	u32 device, config_len;
	unsigned int queues;
	u16 sizes[BH_QUEUES];
	u8 said[BH_CONFIG_LEN];
	union {
		u8 config[BH_CONFIG_LEN];
		struct virtio_blk_config block;
	};
};

/* A virtio device: as long as one session lasts, or a disk or card some, or as somebody holds it. */
struct bh_virtio {
	struct virtio_device vdev;
	struct bh_device *bh;
	struct bh_description is;
	/* What the driver has chosen. */
	u64 accepted, sizes;
	u8 status;
	/* It could not be registered. */
	bool failed;
};

static bool is_disk(const struct bh_device *bh)
{
	return bh->virtio && bh->virtio->is.device == VIRTIO_ID_BLOCK;
}

static struct bh_device *of(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->bh;
}

static ktime_t micros(unsigned int n)
{
	return ns_to_ktime((u64)n * NSEC_PER_USEC);
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

/* The driver has made something available. False breaks the queue. */
static bool notify(struct virtqueue *vq)
{
	struct bh_queue *q = vq->priv;
	struct bh_device *bh = q->bh;
	ktime_t soon = micros(poll_us);
	unsigned long flags;

	if (READ_ONCE(bh->spoilt) && !q->copied && !q->kept)
		return false;
	if (bh_take(q))
		ring(bh);
	if (READ_ONCE(q->failed))
		tasklet_schedule(&bh->work);
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
		drained = bh_drain(q);
		/* What waited for room. */
		if (bh_take(q))
			ring(bh);
		if (drained || xchg(&q->failed, false))
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
	bool later = READ_ONCE(bh->watches) >= WATCH_BURST && time_after(due, now);

	mod_delayed_work(system_long_wq, &bh->watch, later ? due - now : 0);
}

/* Whether a disk has answered all that its driver asked. */
static bool caught_up(struct bh_device *bh)
{
	unsigned int n;

	if (!bh->queues[0].answers)
		return false;
	for (n = 0; n < BH_QUEUES; n++)
		if (bh->queues[n].vq && !list_empty(&bh->queues[n].waiting))
			return false;
	return true;
}

/*
 * Looks at what the device has done. It asks to be woken only when nothing was there, and
 * nobody rang, since the last look: so a device side that rings for nothing costs an
 * interrupt for each poll_us, not as many as it likes. A disk's that answers the last request
 * costs one for it, which the driver has asked for: it is asked at once to ring for the next.
 */
static void look(struct tasklet_struct *work)
{
	struct bh_device *bh = container_of(work, struct bh_device, work);
	ktime_t soon = micros(poll_us), late = micros(idle_us);
	bool woken = xchg(&bh->woken, false), any = serve(bh), sleeps = false;
	unsigned long flags;

	if (bh->irq && (any ? caught_up(bh) : !woken)) {
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
 * Ends the session: nothing of it counts any more. It says that it is away before it clears
 * anything: a device side in the middle of its work, which sees a cleared ring, sees then
 * why.
 */
static void part(struct bh_device *bh)
{
	unsigned long flags;
	unsigned int n;

	WRITE_ONCE(bh->epoch, following(bh->epoch));
	say_hello(bh, ABSENT);
	smp_wmb();
	set_word(bh, BH_STATUS, 0);
	set_word(bh, BH_ACCEPTED, 0);
	set_word(bh, BH_SIZES, 0);
	for (n = 0; n < BH_QUEUES; n++) {
		spin_lock_irqsave(&bh->queues[n].lock, flags);
		memset(bh->mine + BH_AVAIL(n), 0, sizeof(u32));
		spin_unlock_irqrestore(&bh->queues[n].lock, flags);
	}
}

/* A new life of the driver's. The device side answers it when all is clear. */
static void reset(struct virtio_device *vdev)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);
	struct bh_device *bh = virtio->bh;

	run(bh, false);
	mutex_lock(&bh->life);
	virtio->status = 0;
	virtio->accepted = 0;
	virtio->sizes = 0;
	part(bh);
	if (!bh->away)
		say_hello(bh, OPEN);
	mutex_unlock(&bh->life);
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

	mutex_lock(&virtio->bh->life);
	virtio->status = status;
	set_word(virtio->bh, BH_STATUS, status);
	mutex_unlock(&virtio->bh->life);
	if (begins)
		run(virtio->bh, true);
	ring(virtio->bh);
}

static u64 get_features(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->is.features;
}

static int finalize_features(struct virtio_device *vdev)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);

	/* Of the transport's there is none but version 1. */
	vring_transport_features(vdev);
	if (!__virtio_test_bit(vdev, VIRTIO_F_VERSION_1))
		return -EINVAL;
	mutex_lock(&virtio->bh->life);
	virtio->accepted = vdev->features;
	set_word(virtio->bh, BH_ACCEPTED, virtio->accepted);
	mutex_unlock(&virtio->bh->life);
	return 0;
}

static void get(struct virtio_device *vdev, unsigned int offset, void *to, unsigned int len)
{
	const struct bh_description *is = &container_of(vdev, struct bh_virtio, vdev)->is;

	memset(to, 0, len);
	if (offset < is->config_len)
		memcpy(to, is->config + offset, min(len, is->config_len - offset));
}

static void set(struct virtio_device *vdev, unsigned int offset, const void *from, unsigned int len)
{
	dev_dbg(&vdev->dev, "configuration is the device side's alone\n");
}

/* A copy: the other side cannot make a driver read it for ever. */
static u32 generation(struct virtio_device *vdev)
{
	return 0;
}

static const char *bus_name(struct virtio_device *vdev)
{
	return pci_name(of(vdev)->pci);
}

/* The queues' sizes, as the driver has chosen. */
static void choose_sizes(struct bh_virtio *virtio, u64 sizes)
{
	mutex_lock(&virtio->bh->life);
	virtio->sizes = sizes;
	set_word(virtio->bh, BH_SIZES, sizes);
	mutex_unlock(&virtio->bh->life);
}

static void del_vqs(struct virtio_device *vdev)
{
	struct bh_device *bh = of(vdev);
	unsigned long flags;
	unsigned int n;

	run(bh, false);
	choose_sizes(container_of(vdev, struct bh_virtio, vdev), 0);
	for (n = 0; n < BH_QUEUES; n++) {
		struct bh_queue *q = &bh->queues[n], was;

		/* The watch may be about to offer what waits. */
		spin_lock_irqsave(&q->lock, flags);
		was = *q;
		memset_after(q, 0, lock);
		q->bh = bh;
		spin_unlock_irqrestore(&q->lock, flags);
		if (was.vq)
			vring_del_virtqueue(was.vq);
		if (was.pages)
			free_pages_exact(was.pages, was.size);
		kvfree(was.chains);
		bitmap_free(was.out.taken);
		bitmap_free(was.in.taken);
	}
}

/* Each queue's areas: a disk's go both ways, all others' one way, the even ones' to the driver. */
static int share(struct bh_queue *q, unsigned int n, unsigned int count)
{
	u32 section = q->bh->section;
	int err = 0;

	if (q->answers)
		return bh_pool_init(&q->out, section, n, count, headers(q->num)) ?:
			       bh_pool_init(&q->in, section, n, count, 0);
	if (n % 2)
		err = bh_pool_init(&q->out, section, n / 2, count / 2, 0);
	else
		err = bh_pool_init(&q->in, section, n / 2, DIV_ROUND_UP(count, 2), 0);
	return err;
}

static int add_vq(struct bh_virtio *virtio, struct virtqueue **vq, unsigned int n,
		  unsigned int count, vq_callback_t *callback, const char *name, bool ctx)
{
	struct bh_device *bh = virtio->bh;
	struct bh_queue *q = &bh->queues[n];
	u16 num = virtio->is.sizes[n];
	unsigned long flags;
	int err;

	if (n >= virtio->is.queues || !num)
		return -ENOENT;
	/* The watch looks whether anything waits. */
	spin_lock_irqsave(&q->lock, flags);
	q->num = num;
	q->size = vring_size(num, PAGE_SIZE);
	q->desc = (void *)(bh->mine + BH_DESC(n));
	q->avail = (void *)(bh->mine + BH_AVAIL(n));
	q->used = (const void *)(bh->theirs + BH_USED(n));
	/* Of each port the queue of what the driver sends. */
	q->copied = virtio->vdev.id.device == VIRTIO_ID_CONSOLE && n % 2 == 1;
	q->receives = virtio->vdev.id.device == VIRTIO_ID_NET && n % 2 == 0;
	q->merged = __virtio_test_bit(&virtio->vdev, VIRTIO_NET_F_MRG_RXBUF);
	q->answers = virtio->vdev.id.device == VIRTIO_ID_BLOCK;
	q->kept = q->answers || virtio->vdev.id.device == VIRTIO_ID_NET;
	q->ends = q->kept && !q->receives;
	INIT_LIST_HEAD(&q->waiting);
	spin_unlock_irqrestore(&q->lock, flags);
	err = share(q, n, count);
	if (err)
		return err;
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
	unsigned int n, all = 0, own = 0;
	u64 sizes = 0;
	int err;

	for (n = 0; n < count; n++)
		all += !!NAME(n);
	for (n = 0; n < count; n++) {
		vqs[n] = NULL;
		if (!NAME(n))
			continue;
		err = own < BH_QUEUES ? add_vq(virtio, &vqs[n], own, all, CALLBACK(n), NAME(n),
					       CONTEXT(n)) :
					-ENOENT;
		if (err) {
			del_vqs(vdev);
			return err;
		}
		sizes |= (u64)virtio->is.sizes[own] << 16 * own;
		own++;
	}
	choose_sizes(virtio, sizes);
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
	case VIRTIO_ID_BLOCK:
		return one << VIRTIO_F_VERSION_1 | bh_block_features();
	default:
		return 0;
	}
}

/* Copies what the device side says of its device, and looks whether that can be. */
static const char *learn(struct bh_device *bh, struct bh_description *is)
{
	u64 kind = word(bh->theirs, BH_DEVICE), sizes = word(bh->theirs, BH_SIZES);
	u64 config = word(bh->theirs, BH_CONFIG_WORD);
	unsigned int n;

	memset(is, 0, sizeof(*is));
	is->device = (u32)kind;
	is->queues = kind >> 32;
	if (!allowed(is->device))
		return "a kind of device that is not served";
	is->features = word(bh->theirs, BH_OFFERED) & allowed(is->device);
	if (!(is->features >> VIRTIO_F_VERSION_1 & 1))
		return "a device of before virtio 1.0";
	if (!is->queues || is->queues > BH_QUEUES)
		return "too many queues, or none";
	for (n = 0; n < is->queues; n++) {
		u16 size = sizes >> 16 * n;

		if (size < 2 || size > BH_NUM || !is_power_of_2(size))
			return "a queue of a size that cannot be";
		is->sizes[n] = size;
	}
	is->config_len = (u32)config;
	if (is->config_len > BH_CONFIG_LEN)
		return "too long a configuration";
	memcpy(is->said, bh->theirs + BH_CONFIG, is->config_len);
	if (is->device == VIRTIO_ID_BLOCK)
		return bh_block_config(&is->block, (const void *)is->said, is->features,
				       &is->queues, is->sizes, bh->section);
	memcpy(is->config, is->said, is->config_len);
	return NULL;
}

static void release(struct device *dev)
{
	kfree(container_of(dev, struct bh_virtio, vdev.dev));
}

/*
 * Not in the watch: a disk's driver reads from it before it is registered, and the watch is
 * there if its side leaves meanwhile.
 */
static void plug(struct work_struct *work)
{
	struct bh_device *bh = container_of(work, struct bh_device, plug);
	int err = register_virtio_device(&bh->virtio->vdev);

	if (!err)
		return;
	dev_err_ratelimited(&bh->pci->dev, "no virtio device: %d\n", err);
	WRITE_ONCE(bh->virtio->failed, true);
	mod_delayed_work(system_long_wq, &bh->watch, 0);
}

static void refuse(struct bh_device *bh, u32 peer, const char *why)
{
	dev_err_ratelimited(&bh->pci->dev, "refused: %s\n", why);
	bh->refused = peer;
}

static void begin(struct bh_device *bh, u32 peer)
{
	struct bh_virtio *virtio = kzalloc(sizeof(*virtio), GFP_KERNEL);
	const char *why;

	if (!virtio)
		return;
	WRITE_ONCE(bh->peer, peer);
	WRITE_ONCE(bh->spoilt, false);
	virtio->bh = bh;
	virtio->vdev.dev.parent = &bh->pci->dev;
	virtio->vdev.dev.release = release;
	virtio->vdev.config = &operations;
	why = learn(bh, &virtio->is);
	if (why) {
		refuse(bh, peer, why);
		kfree(virtio);
		return;
	}
	virtio->vdev.id.device = virtio->is.device;
	virtio->vdev.id.vendor = BH_VENDOR;
	bh->outlives = virtio->is.device != VIRTIO_ID_CONSOLE;
	bh->virtio = virtio;
	queue_work(system_long_wq, &bh->plug);
}

/* No answer is to come: a disk's requests end with errors, a card's packets unsent, so that nobody waits for them. */
static void give_up(struct bh_device *bh)
{
	WRITE_ONCE(bh->dead, true);
	/* It takes each queue's lock after that. */
	tasklet_schedule(&bh->work);
}

static void unplug(struct bh_device *bh)
{
	struct bh_virtio *virtio = bh->virtio;

	if (!virtio)
		return;
	flush_work(&bh->plug);
	if (virtio->failed) {
		bh->refused = bh->peer;
		put_device(&virtio->vdev.dev);
	} else {
		/* Nobody waits any more for what will not come. A disk's driver waits for errors. */
		if (!is_disk(bh))
			virtio_break_device(&virtio->vdev);
		unregister_virtio_device(&virtio->vdev);
	}
	bh->virtio = NULL;
	WRITE_ONCE(bh->away, false);
	WRITE_ONCE(bh->dead, false);
	bh->outlives = false;
	WRITE_ONCE(bh->epoch, following(bh->epoch));
	say_hello(bh, OPEN);
	ring(bh);
}

static void end(struct bh_device *bh)
{
	if (!bh->virtio)
		return;
	give_up(bh);
	unplug(bh);
}

/* The device side has left, or cannot be believed. */
static void lose(struct bh_device *bh, bool open)
{
	bool spoilt = bh->spoilt;

	dev_info_ratelimited(&bh->pci->dev, "the device is %s: its side %s\n",
			     bh->outlives ? "away" : "gone",
			     bh->spoilt ? "spoilt the channel" :
			     open	? "began anew" :
					  "left");
	if (bh->spoilt)
		bh->refused = bh->peer;
	if (!bh->outlives)
		return end(bh);
	mutex_lock(&bh->life);
	bh->since = jiffies;
	WRITE_ONCE(bh->away, true);
	part(bh);
	/* Now no queue looks at that session any more. */
	WRITE_ONCE(bh->spoilt, false);
	/* So says a driver to a device that it has given up on (virtio 1.2, 2.1): that side begins anew. */
	if (spoilt)
		set_word(bh, BH_STATUS, VIRTIO_CONFIG_S_FAILED);
	mutex_unlock(&bh->life);
	ring(bh);
}

/* The next session of a device side that was away: with its very device it goes on. */
static void revive(struct bh_device *bh, u32 peer)
{
	struct bh_virtio *virtio = bh->virtio;
	struct bh_description is;
	const char *why = learn(bh, &is);
	unsigned int n;

	if (why)
		return refuse(bh, peer, why);
	if (memcmp(&is, &virtio->is, sizeof(is))) {
		dev_info_ratelimited(&bh->pci->dev, "the device is gone: its side has another one\n");
		return end(bh);
	}
	mutex_lock(&bh->life);
	WRITE_ONCE(bh->peer, peer);
	WRITE_ONCE(bh->dead, false);
	/*
	 * First: what a queue takes from now on it offers itself, and bh_again() gives that its
	 * place if it came too early. The device side looks at nothing before the hello.
	 */
	WRITE_ONCE(bh->away, false);
	for (n = 0; n < BH_QUEUES; n++)
		bh_again(&bh->queues[n]);
	set_word(bh, BH_SIZES, virtio->sizes);
	set_word(bh, BH_ACCEPTED, virtio->accepted);
	set_word(bh, BH_STATUS, virtio->status);
	say_hello(bh, OPEN);
	mutex_unlock(&bh->life);
	dev_info_ratelimited(&bh->pci->dev, "the device is back\n");
	ring(bh);
}

/* Whether a disk's request has waited for too long, or its side is away for too long. */
static bool late(struct bh_device *bh)
{
	unsigned long limit = (unsigned long)revive_s * HZ;
	bool late = bh->away && time_after(jiffies, bh->since + limit);
	unsigned int n;

	for (n = 0; n < BH_QUEUES; n++)
		late |= bh_late(&bh->queues[n], limit);
	return late;
}

static void watch(struct work_struct *work)
{
	struct bh_device *bh = container_of(work, struct bh_device, watch.work);
	u64 hello = word(bh->theirs, BH_HELLO);
	u32 peer = epoch_of(hello);
	bool open = phase_of(hello) == OPEN && peer;
	bool lost = !open || peer != bh->peer || bh->spoilt;

	WRITE_ONCE(bh->heard, hello);
	if (READ_ONCE(bh->leaving)) {
		/* As long as it answers, a disk's driver may still write. */
		if (is_disk(bh) && (lost || late(bh)))
			give_up(bh);
		queue_delayed_work(system_long_wq, &bh->watch, msecs_to_jiffies(WATCH_MS));
		return;
	}
	if (bh->virtio && READ_ONCE(bh->virtio->failed))
		unplug(bh);
	if (bh->virtio && !bh->away && lost)
		lose(bh, open);
	if (bh->away && open && peer != bh->refused)
		revive(bh, peer);
	if (bh->outlives && late(bh)) {
		dev_err_ratelimited(&bh->pci->dev, "the device is gone: no answer for %u s\n", revive_s);
		bh->refused = bh->peer;
		end(bh);
	}
	if (bh->away && !bh->dead && !is_disk(bh) &&
	    time_after(jiffies, bh->since + msecs_to_jiffies(PACKETS_MS)))
		give_up(bh);
	if (!bh->virtio && open && peer != bh->refused)
		begin(bh, peer);
	if (time_after_eq(jiffies, bh->watched + msecs_to_jiffies(WATCH_MS))) {
		WRITE_ONCE(bh->watched, jiffies);
		WRITE_ONCE(bh->watches, 0);
	}
	WRITE_ONCE(bh->watches, bh->watches + 1);
	/* What could not begin for want of memory is tried again. */
	if (!bh->irq || (open && !bh->virtio && peer != bh->refused))
		queue_delayed_work(system_long_wq, &bh->watch, msecs_to_jiffies(WATCH_MS));
	else if (bh->outlives)
		queue_delayed_work(system_long_wq, &bh->watch, msecs_to_jiffies(ALIVE_MS));
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
	unsigned int n;
	u64 hello;
	int err;

	if (!bh)
		return -ENOMEM;
	bh->pci = pci;
	err = map(bh);
	if (err)
		return err;
	spin_lock_init(&bh->lock);
	mutex_init(&bh->life);
	hrtimer_init(&bh->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	bh->timer.function = ticked;
	tasklet_setup(&bh->work, look);
	INIT_DELAYED_WORK(&bh->watch, watch);
	INIT_WORK(&bh->plug, plug);
	for (n = 0; n < BH_QUEUES; n++) {
		spin_lock_init(&bh->queues[n].lock);
		bh->queues[n].bh = bh;
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
	/* A disk's driver may have something to write: it looks, and is watched, until that is over. */
	WRITE_ONCE(bh->leaving, true);
	cancel_delayed_work_sync(&bh->watch);
	tasklet_schedule(&bh->work);
	queue_delayed_work(system_long_wq, &bh->watch, 0);
	unplug(bh);
	cancel_delayed_work_sync(&bh->watch);
	/* A look may start the timer, the timer a look: now neither goes on. */
	tasklet_kill(&bh->work);
	hrtimer_cancel(&bh->timer);
	tasklet_kill(&bh->work);
	say_hello(bh, CLOSED);
	ring(bh);
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
