// SPDX-License-Identifier: GPL-2.0
/*
 * A virtio device, as its driver sees it: the operations of a transport, and what a device side
 * may say of its device.
 */
#include <linux/bitmap.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/version.h>
#include <linux/virtio_config.h>
#include <linux/virtio_console.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>

#include "bulkhead_virtio.h"
#include "device.h"
#include "notify.h"
#include "session.h"

static struct bh_device *of(struct virtio_device *vdev)
{
	return container_of(vdev, struct bh_virtio, vdev)->bh;
}

/* A new life of the driver's. The device side answers it when all is clear. */
static void reset(struct virtio_device *vdev)
{
	struct bh_virtio *virtio = container_of(vdev, struct bh_virtio, vdev);
	struct bh_device *bh = virtio->bh;

	bh_run(bh, false);
	mutex_lock(&bh->life);
	virtio->status = 0;
	virtio->accepted = 0;
	virtio->sizes = 0;
	bh_part(bh);
	if (!bh->away)
		bh_hello(bh, OPEN);
	mutex_unlock(&bh->life);
	bh_ring(bh);
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
		bh_run(virtio->bh, true);
	bh_ring(virtio->bh);
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

	bh_run(bh, false);
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
	*vq = vring_new_virtqueue(n, num, PAGE_SIZE, &virtio->vdev, true, ctx, q->pages, bh_notify,
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

const struct virtio_config_ops bh_operations = {
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
const char *bh_learn(struct bh_device *bh, struct bh_description *is)
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
