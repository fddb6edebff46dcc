// SPDX-License-Identifier: GPL-2.0
/* PCI functions of this Linux, for the image's code. Some of them go to other sandboxes. */
#include <linux/acpi.h>
#include <linux/blkdev.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/serial_8250.h>
#include <linux/tty.h>
#include <asm/pgtable.h>

#include "enable.h"

/*
 * A device table of zeros, which lets all through. It is never freed: QEMU's IOMMU looks there for messages from the
 * first image on, though it is off.
 */
static struct {
	void *va;
	u64 len;
} zeros;

static int keep_zeros(struct bh_late *late, u32 buses)
{
	/* 256 entries of 32 bytes. */
	u64 len = (u64)buses << 13;

	if (len > zeros.len) {
		zeros.va = alloc_pages_exact(len, GFP_KERNEL | __GFP_ZERO);
		zeros.len = zeros.va ? len : 0;
	}
	late->zeros.start = zeros.va ? __pa(zeros.va) : 0;
	late->zeros.len = zeros.len;
	return zeros.va ? 0 : -ENOMEM;
}

/* Entries of a kind in the table of interrupt controllers. */
static u32 count_ioapics(void)
{
	struct acpi_table_header *table;
	struct acpi_subtable_header *entry;
	u32 count = 0;
	void *end;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_MADT, 0, &table)))
		return 0;
	end = (void *)table + table->length;
	for (entry = (void *)table + sizeof(struct acpi_table_madt);
	     (void *)(entry + 1) <= end && entry->length >= sizeof(*entry); entry = (void *)entry + entry->length)
		count += entry->type == ACPI_MADT_TYPE_IO_APIC;
	acpi_put_table(table);
	return count;
}

/* Units in AMD's table of IOMMUs: blocks of several kinds can be about one unit, which has one address. */
static u32 count_iommus(void)
{
	struct acpi_table_header *table;
	struct acpi_ivrs_header *entry;
	u64 seen[8], base;
	u32 count = 0, i;
	void *end;

	if (ACPI_FAILURE(acpi_get_table(ACPI_SIG_IVRS, 0, &table)))
		return 0;
	end = (void *)table + table->length;
	for (entry = (void *)table + sizeof(struct acpi_table_ivrs);
	     (void *)entry + 16 <= end && entry->length >= sizeof(*entry); entry = (void *)entry + entry->length) {
		if (entry->type != 0x10 && entry->type != 0x11 && entry->type != 0x40)
			continue;
		base = ((struct acpi_ivrs_hardware_10 *)entry)->base_address;
		for (i = 0; i < count && seen[i] != base; i++)
			;
		if (i == count && count < ARRAY_SIZE(seen))
			seen[count++] = base;
	}
	acpi_put_table(table);
	return count;
}

int bh_functions(struct bh_late *late)
{
	struct pci_dev *dev = NULL;
	u32 buses = 1;

	late->function_count = 0;
	late->ioapics = count_ioapics();
	late->iommus = count_iommus();
	for_each_pci_dev(dev) {
		if (pci_domain_nr(dev->bus) || late->function_count == ARRAY_SIZE(late->functions)) {
			pr_err("bulkhead: %s: only %zu PCI functions of segment 0 can be confined\n", pci_name(dev),
			       ARRAY_SIZE(late->functions));
			pci_dev_put(dev);
			return -E2BIG;
		}
		late->functions[late->function_count++] = pci_dev_id(dev);
		buses = max(buses, dev->bus->number + 1u);
	}
	return keep_zeros(late, buses);
}

/* Maps the GiB of an address, uncached: the image's code writes to registers there. */
static int map_gib(pgd_t *tables, u64 at)
{
	pgd_t *entry = &tables[at >> 39];
	u64 *puds;

	if (!boot_cpu_has(X86_FEATURE_GBPAGES))
		return -ENODEV;
	/* The Linux' own half. An entry of this level is never none where it is folded. */
	if (at >> 47)
		return -ERANGE;
	if (!pgd_val(*entry)) {
		puds = (u64 *)get_zeroed_page(GFP_KERNEL);
		if (!puds)
			return -ENOMEM;
		*entry = __pgd(__pa(puds) | _PAGE_PRESENT | _PAGE_RW);
	}
	puds = __va(pgd_val(*entry) & PTE_PFN_MASK);
	puds[at >> 30 & 511] = at >> 30 << 30 | _PAGE_PSE | _PAGE_PCD | _PAGE_PWT | _PAGE_PRESENT | _PAGE_RW;
	return 0;
}

int bh_map_functions(pgd_t *tables)
{
	struct pci_dev *dev = NULL;
	int bar, err;
	u64 at, end;

	for_each_pci_dev(dev) {
		for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
			/* No table of messages is larger than this. */
			at = pci_resource_start(dev, bar);
			end = at + min_t(u64, pci_resource_len(dev, bar), 4ull << 30);
			if (!(pci_resource_flags(dev, bar) & IORESOURCE_MEM) || at < 4ull << 30)
				continue;
			for (at = at >> 30 << 30; at < end; at += 1ull << 30) {
				err = map_gib(tables, at);
				if (err) {
					pr_err("bulkhead: %s: its registers cannot be mapped (%d)\n", pci_name(dev), err);
					pci_dev_put(dev);
					return err;
				}
			}
		}
	}
	return 0;
}

/* Those of the first 512 GiB are freed with the tables. */
void bh_unmap_functions(pgd_t *tables)
{
	int i;

	for (i = 1; i < 256; i++)
		if (pgd_val(tables[i]))
			free_page((ulong)__va(pgd_val(tables[i]) & PTE_PFN_MASK));
}

/* Functions that other sandboxes get, as requester IDs, and serial ports. */
static struct {
	u16 ids[ARRAY_SIZE(((struct bh_late *)0)->functions)];
	u32 count;
	/* Ports above them, which would fall asleep without them. */
	struct pci_dev *above[ARRAY_SIZE(((struct bh_late *)0)->functions)];
	/* As many of them are away. */
	u32 away;
	u16 ports[8];
	u32 port_count;
	/* Those of a driver's. */
	struct device *serial[8];
} taken;

static struct pci_dev *function_of(u16 id)
{
	return pci_get_domain_bus_and_slot(0, PCI_BUS_NUM(id), id & 0xff);
}

/*
 * Finds the disk of a device. One of NVMe can be a path to a disk with another name, which is below no function:
 * nvme0c1n2 to nvme0n2.
 */
static struct device *disk_of(struct device *child)
{
	u32 subsystem, controller, number;
	struct device *head = NULL;
	char name[32];

	if (sscanf(dev_name(child), "nvme%uc%un%u", &subsystem, &controller, &number) == 3) {
		snprintf(name, sizeof(name), "nvme%un%u", subsystem, number);
		head = class_find_device_by_name(child->class, name);
	}
	return head ? head : get_device(child);
}

static int disk_in_use(struct device *child, const char *function)
{
	struct device *disk = disk_of(child);
	bool open = atomic_read(&dev_to_bdev(disk)->bd_openers);

	if (open)
		pr_err("bulkhead: %s: its disk %s is in use: unmount it, or stop what has it open\n", function,
		       dev_name(disk));
	put_device(disk);
	return open ? -EIO : 0;
}

/* Tells if something of a function is in use: a disk that is open, or a network interface that is up. */
static int in_use(struct device *child, void *function)
{
	const char *class = child->class ? child->class->name : "";

	if (!strcmp(class, "block") && disk_in_use(child, function))
		return -EIO;
	if (!strcmp(class, "net") && to_net_dev(child)->flags & IFF_UP) {
		pr_err("bulkhead: %s: its interface %s is up: ip link set %s down\n", (char *)function, dev_name(child),
		       dev_name(child));
		return -EIO;
	}
	return device_for_each_child(child, function, in_use);
}

int bh_in_use(struct pci_dev *dev)
{
	return device_for_each_child(&dev->dev, (void *)pci_name(dev), in_use);
}

static int can_go(u16 id)
{
	struct pci_dev *dev = function_of(id);
	int err;

	if (!dev) {
		pr_err("bulkhead: PCI function %02x:%02x.%x, which the image wants, is not here: echo 1 > /sys/bus/pci/rescan\n",
		       PCI_BUS_NUM(id), PCI_SLOT(id), PCI_FUNC(id));
		return -ENODEV;
	}
	err = bh_in_use(dev);
	/* Its driver would wait for whoever has it open. */
	if (dev->driver && !strcmp(dev->driver->name, "vfio-pci")) {
		pr_err("bulkhead: %s: vfio-pci has it: unbind that first\n", pci_name(dev));
		err = -EIO;
	}
	pci_dev_put(dev);
	return err;
}

/* Tells if a rescan has found one that is away. */
int bh_found_again(void)
{
	struct pci_dev *dev;
	u32 i;

	for (i = 0; i < taken.away; i++) {
		dev = function_of(taken.ids[i]);
		if (!dev)
			continue;
		pr_err("bulkhead: %s was found again by a rescan meanwhile: try once more\n", pci_name(dev));
		pci_dev_put(dev);
		return -EAGAIN;
	}
	return 0;
}

#if IS_BUILTIN(CONFIG_SERIAL_8250)
/* Exported, and in no header that modules get. */
struct uart_8250_port *serial8250_get_port(int line);

/* Finds a serial port of this Linux by its first I/O port. */
static struct uart_port *serial_at(u16 port)
{
	struct uart_port *found;
	int line;

	for (line = 0; line < CONFIG_SERIAL_8250_NR_UARTS; line++) {
		found = &serial8250_get_port(line)->port;
		if (found->type != PORT_UNKNOWN && found->iobase == port && found->dev)
			return found;
	}
	return NULL;
}

/* Tells if another one has the same device: its driver could not leave one alone. */
static bool shares_device(struct uart_port *uart)
{
	struct uart_port *other;
	int line;

	for (line = 0; line < CONFIG_SERIAL_8250_NR_UARTS; line++) {
		other = &serial8250_get_port(line)->port;
		if (other != uart && other->type != PORT_UNKNOWN && other->dev == uart->dev)
			return true;
	}
	return false;
}
#else
static struct uart_port *serial_at(u16 port)
{
	return NULL;
}

static bool shares_device(struct uart_port *uart)
{
	return false;
}
#endif

/* One that this Linux does not know of can go. */
static int port_can_go(u16 port)
{
	struct uart_port *uart = serial_at(port);

	if (!IS_BUILTIN(CONFIG_SERIAL_8250)) {
		pr_err("bulkhead: this kernel does not tell if the serial port %#x is in use: give none away\n", port);
		return -EIO;
	}
	if (uart && shares_device(uart)) {
		pr_err("bulkhead: ttyS%d has its driver together with another port: give none of them away\n", uart->line);
		return -EIO;
	}
	if (!uart || (!uart_console(uart) && !(uart->state && tty_port_users(&uart->state->port))))
		return 0;
	pr_err("bulkhead: ttyS%d is in use: stop what has it open, or take it out of console=\n", uart->line);
	return -EIO;
}

static void take_port(u32 i)
{
	struct uart_port *uart = serial_at(taken.ports[i]);

	taken.serial[i] = uart ? get_device(uart->dev) : NULL;
	if (taken.serial[i])
		device_release_driver(taken.serial[i]);
}

static void give_port(u32 i)
{
	if (!taken.serial[i])
		return;
	if (device_attach(taken.serial[i]) <= 0)
		dev_err(taken.serial[i], "bulkhead: it has no driver any more\n");
	put_device(taken.serial[i]);
	taken.serial[i] = NULL;
}

static int all_can_go(void)
{
	u32 i;
	int err = 0;

	for (i = 0; i < taken.count && !err; i++)
		err = can_go(taken.ids[i]);
	for (i = 0; i < taken.port_count && !err; i++)
		err = port_can_go(taken.ports[i]);
	return err;
}

/* Finds which devices the image wants, and that this Linux can do without them. */
int bh_find_taken(const struct bh_config_op *ops, u32 count)
{
	u32 i;

	taken.count = taken.port_count = 0;
	for (i = 0; i < count; i++) {
		if (ops[i].kind == BH_TAKE_PORTS) {
			if (taken.port_count == ARRAY_SIZE(taken.ports)) {
				pr_err("bulkhead: more than %zu serial ports cannot be given away\n", ARRAY_SIZE(taken.ports));
				return -E2BIG;
			}
			taken.ports[taken.port_count++] = ops[i].value;
		}
		if (ops[i].kind != BH_TAKE || (taken.count && taken.ids[taken.count - 1] == ops[i].bdf))
			continue;
		if (taken.count == ARRAY_SIZE(taken.ids)) {
			pr_err("bulkhead: more than %zu PCI functions cannot be given away\n", ARRAY_SIZE(taken.ids));
			return -E2BIG;
		}
		taken.ids[taken.count++] = ops[i].bdf;
	}
	return all_can_go();
}

/* Takes a function from its driver and from this Linux. It reaches no memory then, and sends nothing. */
static int take(u16 id)
{
	struct pci_dev *dev = function_of(id);
	int err;

	if (!dev)
		return -ENODEV;
	device_release_driver(&dev->dev);
	pm_runtime_get_sync(&dev->dev);
	pci_set_power_state(dev, PCI_D0);
	pci_clear_master(dev);
	/* The image's code stops those that the kernel cannot reset. */
	err = pci_reset_function(dev);
	if (err == -ENOTTY)
		err = 0;
	if (err)
		pr_err("bulkhead: %s: its reset fails (%d)\n", pci_name(dev), err);
	pm_runtime_put_noidle(&dev->dev);
	if (dev->bus->self)
		pm_runtime_get_sync(&dev->bus->self->dev);
	taken.above[taken.away++] = pci_dev_get(dev->bus->self);
	pci_stop_and_remove_bus_device(dev);
	pci_dev_put(dev);
	return err;
}

int bh_take_functions(void)
{
	u32 i;
	int err;

	pci_lock_rescan_remove();
	/* Somebody can have used one since. */
	err = all_can_go();
	for (i = 0; i < taken.port_count && !err; i++)
		take_port(i);
	for (i = 0; i < taken.count && !err; i++)
		err = take(taken.ids[i]);
	pci_unlock_rescan_remove();
	return err;
}

/* A function is where it was, and keeps its addresses. A rescan of the whole bus could choose others. */
static void give(u16 id)
{
	struct pci_bus *bus = pci_find_bus(0, PCI_BUS_NUM(id));
	struct pci_dev *dev;
	int i;

	if (bus)
		pci_scan_slot(bus, PCI_DEVFN(PCI_SLOT(id), 0));
	dev = function_of(id);
	if (!dev) {
		pr_err("bulkhead: PCI function %02x:%02x.%x does not come back\n", PCI_BUS_NUM(id), PCI_SLOT(id),
		       PCI_FUNC(id));
		return;
	}
	for (i = 0; i < PCI_STD_NUM_BARS; i++)
		if (pci_resource_len(dev, i) && !dev->resource[i].parent && pci_claim_resource(dev, i))
			pci_err(dev, "bulkhead: BAR %d is somebody else's now\n", i);
	pci_bus_add_device(dev);
	pci_dev_put(dev);
}

void bh_give_functions(void)
{
	u32 i;

	pci_lock_rescan_remove();
	for (i = 0; i < taken.away; i++) {
		give(taken.ids[i]);
		if (taken.above[i])
			pm_runtime_put(&taken.above[i]->dev);
		pci_dev_put(taken.above[i]);
	}
	for (i = 0; i < taken.port_count; i++)
		give_port(i);
	pci_unlock_rescan_remove();
	taken.away = 0;
}
