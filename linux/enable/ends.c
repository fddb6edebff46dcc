// SPDX-License-Identifier: GPL-2.0
/*
 * Ends of channels: PCI functions that no hardware has. A Linux that ran first gets them with an image, and loses them
 * with it. In any Linux those of a sandbox that comes and goes do so, too. A process waits for the interrupt of one by
 * UIO. Those of virtio devices have a driver of their own (linux/module).
 */
#include <linux/interrupt.h>
#include <linux/pci.h>
#include <linux/uio_driver.h>

#include "enable.h"

#define VENDOR (BH_ENDS & 0xffff)
#define DEVICE (BH_ENDS >> 16)

/* A function of the specification keeps its addresses: the image has chosen them. */
static int plug(struct pci_bus *bus, u32 devfn)
{
	struct pci_dev *dev = pci_get_slot(bus, devfn);
	int i;

	if (dev) {
		pci_dev_put(dev);
		return 0;
	}
	dev = pci_scan_single_device(bus, devfn);
	if (!dev)
		return -ENODEV;
	for (i = 0; i < PCI_STD_NUM_BARS; i++) {
		if (pci_resource_len(dev, i) && pci_claim_resource(dev, i)) {
			pci_err(dev, "bulkhead: BAR %d is somebody else's: this channel is not there\n", i);
			pci_stop_and_remove_bus_device(dev);
			return -EBUSY;
		}
	}
	pci_bus_add_device(dev);
	return 0;
}

/* Tells if an end is one of this channel; without a name all are. */
static bool is_of(struct pci_bus *bus, u32 devfn, const char *channel)
{
	char name[BH_ENDS_NAME_LEN + 1] = {};
	u32 i;

	for (i = 0; channel && i < BH_ENDS_NAME_LEN; i += 4)
		if (pci_bus_read_config_dword(bus, devfn, BH_ENDS_NAME + i, (u32 *)(name + i)))
			return false;
	return !channel || !strcmp(name, channel);
}

static bool is_end(const struct pci_dev *dev)
{
	return dev->vendor == VENDOR && dev->device == DEVICE && dev->subsystem_device == BH_ENDS_SUBSYSTEM;
}

/* A disk that is mounted would lose what it has not written yet. */
int bh_ends_can_go(const char *channel)
{
	struct pci_dev *dev = NULL;
	int err;

	while ((dev = pci_get_device(VENDOR, DEVICE, dev))) {
		err = is_end(dev) && is_of(dev->bus, dev->devfn, channel) ? bh_in_use(dev) : 0;
		if (err) {
			pci_dev_put(dev);
			return err;
		}
	}
	return 0;
}

/* They are on bus 0, where the machine has nothing. */
int bh_plug(const char *channel)
{
	struct pci_bus *bus = pci_find_bus(0, 0);
	u32 devfn, ids;
	int err = 0, failed;

	if (!bus)
		return 0;
	pci_lock_rescan_remove();
	for (devfn = 0; devfn < 256; devfn++) {
		failed = 0;
		if (!pci_bus_read_config_dword(bus, devfn, PCI_VENDOR_ID, &ids) && ids == BH_ENDS)
			failed = is_of(bus, devfn, channel) ? plug(bus, devfn) : 0;
		else if (!PCI_FUNC(devfn))
			devfn |= 7;
		err = err ? err : failed;
	}
	pci_unlock_rescan_remove();
	return err;
}

int bh_unplug(const char *channel)
{
	struct pci_bus *bus = pci_find_bus(0, 0);
	struct pci_dev *dev;
	u32 devfn;
	int err;

	if (!bus)
		return 0;
	pci_lock_rescan_remove();
	err = bh_ends_can_go(channel);
	for (devfn = 0; devfn < 256 && !err; devfn++) {
		dev = pci_get_slot(bus, devfn);
		if (dev && is_end(dev) && is_of(bus, devfn, channel))
			pci_stop_and_remove_bus_device(dev);
		pci_dev_put(dev);
	}
	pci_unlock_rescan_remove();
	return err;
}

/* The process reads how many there were. */
static irqreturn_t woken(int irq, struct uio_info *info)
{
	return IRQ_HANDLED;
}

static int probe(struct pci_dev *dev, const struct pci_device_id *id)
{
	struct uio_info *info;
	int err;

	/* An end that nobody wakes has no interrupt, and needs no driver. */
	if (!dev->msix_cap)
		return -ENODEV;
	err = pcim_enable_device(dev);
	if (err)
		return err;
	info = devm_kzalloc(&dev->dev, sizeof(*info), GFP_KERNEL);
	if (!info)
		return -ENOMEM;
	err = pci_alloc_irq_vectors(dev, 1, 1, PCI_IRQ_MSIX);
	if (err < 0)
		return err;
	info->name = "bulkhead";
	info->version = "1";
	info->irq = pci_irq_vector(dev, 0);
	info->handler = woken;
	return devm_uio_register_device(&dev->dev, info);
}

/* The class of raw pages, which wake nobody, and behind it those of messages: queues, records, mailboxes. */
#define MESSAGES(n) { PCI_DEVICE(VENDOR, DEVICE), .class = BH_ENDS_CLASS + (n), .class_mask = 0xffffff }

static const struct pci_device_id ids[] = { MESSAGES(1), MESSAGES(2), MESSAGES(3), {} };

static struct pci_driver driver = {
	.name = "bulkhead",
	.id_table = ids,
	.probe = probe,
};

int bh_ends_begin(void)
{
	return pci_register_driver(&driver);
}

void bh_ends_end(void)
{
	pci_unregister_driver(&driver);
}
