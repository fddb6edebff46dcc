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
 * Here are the lives of both sides. What wakes them is notify.c's and spin.c's, the devices'
 * operations are device.c's, and the copies are mirror.c's.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>

#include "bulkhead_virtio.h"
#include "device.h"
#include "notify.h"
#include "session.h"
#include "spin.h"

static unsigned int revive_s = 30;
module_param(revive_s, uint, 0644);
MODULE_PARM_DESC(revive_s, "seconds to wait for a device side that is away; a disk's also for a silent one");

/* How long a card's packets wait for its device side: a kernel complains of them after 5 s. */
#define PACKETS_MS 2000

/* How often it looks at a disk's side, at least. */
#define ALIVE_MS 500

static bool is_disk(const struct bh_device *bh)
{
	return bh->virtio && bh->virtio->is.device == VIRTIO_ID_BLOCK;
}

static u32 following(u32 epoch)
{
	u32 next = (epoch + 1) & BH_EPOCHS;

	return next ? next : 1;
}

void bh_hello(struct bh_device *bh, unsigned int phase)
{
	set_word(bh, BH_HELLO, (u64)phase << 62 | (u64)bh->epoch << 32 | bh->peer);
}

void bh_part(struct bh_device *bh)
{
	unsigned long flags;
	unsigned int n;

	WRITE_ONCE(bh->epoch, following(bh->epoch));
	bh_hello(bh, ABSENT);
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
	virtio->vdev.config = &bh_operations;
	why = bh_learn(bh, &virtio->is);
	if (why) {
		refuse(bh, peer, why);
		kfree(virtio);
		return;
	}
	virtio->vdev.id.device = virtio->is.device;
	virtio->vdev.id.vendor = BH_VENDOR;
	bh->outlives = virtio->is.device != VIRTIO_ID_CONSOLE;
	bh->virtio = virtio;
	if (bh->outlives)
		bh_spin_start(bh);
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
	bh_spin_stop(bh);
	bh->virtio = NULL;
	WRITE_ONCE(bh->away, false);
	WRITE_ONCE(bh->dead, false);
	bh->outlives = false;
	WRITE_ONCE(bh->epoch, following(bh->epoch));
	bh_hello(bh, OPEN);
	bh_ring(bh);
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
	bh_part(bh);
	/* Now no queue looks at that session any more. */
	WRITE_ONCE(bh->spoilt, false);
	/* So says a driver to a device that it has given up on (virtio 1.2, 2.1): that side begins anew. */
	if (spoilt)
		set_word(bh, BH_STATUS, VIRTIO_CONFIG_S_FAILED);
	mutex_unlock(&bh->life);
	bh_ring(bh);
}

/* The next session of a device side that was away: with its very device it goes on. */
static void revive(struct bh_device *bh, u32 peer)
{
	struct bh_virtio *virtio = bh->virtio;
	struct bh_description is;
	const char *why = bh_learn(bh, &is);
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
	bh_hello(bh, OPEN);
	mutex_unlock(&bh->life);
	dev_info_ratelimited(&bh->pci->dev, "the device is back\n");
	bh_ring(bh);
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
	bh->notify = notify;
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
	mutex_init(&bh->life);
	bh_notify_init(bh);
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
	bh_hello(bh, OPEN);
	pci_set_drvdata(pci, bh);
	err = bh->rings ? bh_listen(bh) : 0;
	if (err)
		dev_warn(&pci->dev, "no interrupt (%d): it looks from time to time\n", err);
	queue_delayed_work(system_long_wq, &bh->watch, 0);
	return 0;
}

static void remove(struct pci_dev *pci)
{
	struct bh_device *bh = pci_get_drvdata(pci);

	bh_hush(bh);
	/* A disk's driver may have something to write: it looks, and is watched, until that is over. */
	WRITE_ONCE(bh->leaving, true);
	cancel_delayed_work_sync(&bh->watch);
	tasklet_schedule(&bh->work);
	queue_delayed_work(system_long_wq, &bh->watch, 0);
	unplug(bh);
	cancel_delayed_work_sync(&bh->watch);
	bh_notify_end(bh);
	bh_hello(bh, CLOSED);
	bh_ring(bh);
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
