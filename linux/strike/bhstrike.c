// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: what the kernel of a Linux can do to its monitor and to other sandboxes. `act` names the attack; `at` is a
 * physical address, `core` the x2APIC ID of another sandbox' core. The module says what it got.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/string.h>
#include <asm/asm.h>
#include <asm/msr.h>

static char *act = "";
module_param(act, charp, 0);
static ulong at;
module_param(at, ulong, 0);
static uint core = 1;
module_param(core, uint, 0);

#define ICR 0x830
#define RELEASE 0x4248000eull

/* Runs an instruction with RAX; true if it raised an exception. */
#define RAISES(instruction, rax)                                                                  \
	({                                                                                        \
		int raised = 1;                                                                   \
		asm volatile("1: " instruction "\n\txorl %0, %0\n2:\n" _ASM_EXTABLE(1b, 2b)       \
			     : "+r"(raised)                                                       \
			     : "a"(rax)                                                           \
			     : "memory", "cc");                                                   \
		raised;                                                                           \
	})

static bool is(const char *name)
{
	return !strcmp(act, name);
}

/* An interrupt command: 0 as its result, or -EIO for #GP. */
static long command(u32 low)
{
	return wrmsrl_safe(ICR, (u64)core << 32 | low);
}

static long release(void)
{
	u64 result = RELEASE;

	asm volatile("vmmcall" : "+a"(result) : : "memory", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
	return result;
}

/* As linux/enable/uapi.h has it. */
#define BH_DISABLE _IO('B', 2)

/* Asks the module that started the image, past all checks of its command. */
static long disable(void)
{
	struct file *device = filp_open("/dev/bulkhead", O_RDWR, 0);
	long result;

	if (IS_ERR(device))
		return PTR_ERR(device);
	result = device->f_op->unlocked_ioctl(device, BH_DISABLE, 0);
	filp_close(device, NULL);
	return result;
}

/* Reads a word of physical memory, or writes it. */
static long reach(bool write)
{
	void __iomem *page = ioremap(at & PAGE_MASK, PAGE_SIZE);
	long value = 0;

	if (!page)
		return -ENOMEM;
	if (write)
		writel(0xbad, page + (at & ~PAGE_MASK));
	else
		value = readl(page + (at & ~PAGE_MASK));
	iounmap(page);
	return value;
}

/* QEMU's educational device, whose DMA and MSI are its driver's. */
static struct pci_dev *edu(void)
{
	struct pci_dev *dev = pci_get_device(0x1234, 0x11e8, NULL);

	if (dev && !pci_enable_device(dev))
		pci_set_master(dev);
	return dev;
}

#define PATTERN 0xb01dface5ca1ab1eull

/* The device takes a word of own memory, and writes it to an address. */
static long copy(u64 address)
{
	u64 *page = (u64 *)get_zeroed_page(GFP_KERNEL);
	struct pci_dev *dev = edu();
	void __iomem *registers = dev ? pci_iomap(dev, 0, 0) : NULL;
	int step, looks = 0;

	if (!registers || !page)
		return -ENODEV;
	*page = PATTERN;
	for (step = 0; step < 2; step++) {
		writeq(step ? 0x40000 : virt_to_phys(page), registers + 0x80);
		writeq(step ? address : 0x40000, registers + 0x88);
		writeq(8, registers + 0x90);
		writeq(step ? 3 : 1, registers + 0x98);
		for (looks = 0; looks < 100 && readl(registers + 0x98) & 1; looks++)
			msleep(20);
	}
	pci_iounmap(dev, registers);
	return looks < 100 ? 0 : -ETIMEDOUT;
}

/* 1: it reaches own memory. */
static long own(void)
{
	u64 *page = (u64 *)get_zeroed_page(GFP_KERNEL);
	long result = page ? copy(virt_to_phys(page)) : -ENOMEM;

	return result ? result : *page == PATTERN;
}

/* A message to another sandbox' core, and a register elsewhere. */
static long configure(int at, u32 value)
{
	struct pci_dev *dev = edu();

	if (!dev)
		return -ENODEV;
	return pci_write_config_dword(dev, at < 0 ? dev->msi_cap - at : at, value);
}

static long space(bool write)
{
	struct pci_bus *bus = pci_find_bus(0, at >> 20 & 0xff);
	u32 value = 0;

	if (!bus)
		return -ENODEV;
	if (write)
		pci_bus_write_config_dword(bus, at >> 12 & 0xff, at & 0xfff, 6);
	else
		pci_bus_read_config_dword(bus, at >> 12 & 0xff, at & 0xfff, &value);
	return value;
}

static atomic_t handled;

static irqreturn_t handle(int irq, void *registers)
{
	writel(readl(registers + 0x24), registers + 0x64);
	atomic_inc(&handled);
	return IRQ_HANDLED;
}

/*
 * The device's message goes to each interrupt of each own core in turn, and back. It is raised before and afterwards:
 * 2 if both times arrive. `at` is the set of own cores.
 */
static long wander(void)
{
	struct pci_dev *dev = edu();
	void __iomem *registers = dev ? pci_iomap(dev, 0, 0) : NULL;
	u32 address, data;
	int to, vector, wrong = 0;

	if (!registers || pci_alloc_irq_vectors(dev, 1, 1, PCI_IRQ_MSI) != 1)
		return -ENODEV;
	if (request_irq(pci_irq_vector(dev, 0), handle, 0, "bhstrike", registers))
		return -EBUSY;
	writel(1, registers + 0x60);
	msleep(50);
	pci_read_config_dword(dev, dev->msi_cap + 4, &address);
	pci_read_config_dword(dev, dev->msi_cap + 12, &data);
	for (to = 0; to < 8; to++)
		for (vector = 16; at >> to & 1 && vector < 256; vector++)
			wrong |= configure(-4, 0xfee00000 | to << 12) | configure(-12, vector);
	wrong |= configure(-4, address) | configure(-12, data);
	writel(1, registers + 0x60);
	msleep(50);
	/* An interrupt that is freed gets a message of zeros, which would be denied while it is on. */
	pci_write_config_word(dev, dev->msi_cap + PCI_MSI_FLAGS, 0);
	free_irq(pci_irq_vector(dev, 0), registers);
	pci_free_irq_vectors(dev);
	pci_iounmap(dev, registers);
	return wrong ? -EIO : atomic_read(&handled);
}

static long poke(u64 address, u32 offset, u32 value)
{
	void __iomem *page = ioremap(address & PAGE_MASK, PAGE_SIZE);

	if (!page)
		return -ENOMEM;
	writel(value, page + offset);
	iounmap(page);
	return 0;
}

static long timer(void)
{
	void __iomem *page = ioremap(0xfed00000, PAGE_SIZE);
	long on;

	if (!page)
		return -ENOMEM;
	writel(readl(page + 0x100) | 1 << 14, page + 0x100);
	on = readl(page + 0x100) >> 14 & 1;
	writel(at, page + 0x114);
	iounmap(page);
	return on;
}

static long devices(void)
{
	if (is("edu-own"))
		return own();
	if (is("edu-dma"))
		return copy(at);
	if (is("edu-msi"))
		return configure(-4, 0xfee00000 | core << 12) | configure(-12, 0x70) | configure(0x40, 1 << 16);
	if (is("edu-wander"))
		return wander();
	if (is("edu-bar"))
		return configure(PCI_BASE_ADDRESS_0, 0xfec00000);
	/* A register of a function that the kernel does not know, by its address in the space at 0xb0000000. */
	if (is("config-read") || is("config-write"))
		return space(is("config-write"));
	/* An entry of a table of MSI-X: its last word opens it. */
	if (is("msix"))
		return poke(at, 0, 0xfee00000 | core << 12) | poke(at, 4, 0) | poke(at, 8, 0x70) | poke(at, 12, 0);
	/* The IOAPIC's last line, to that core. */
	if (is("line"))
		return poke(0xfec00000, 0, 0x3f) | poke(0xfec00000, 0x10, core << 24) | poke(0xfec00000, 0, 0x3e) |
		       poke(0xfec00000, 0x10, 0x70);
	/* A comparator of the HPET that sends messages: 1 if it is on. Then its address. */
	if (is("hpet"))
		return timer();
	return -ENOENT;
}

static long strike(void)
{
	u64 efer = 0;

	if (is("ipi"))
		return command(0x4000 | 0x70);
	if (is("ipi-logical"))
		return wrmsrl_safe(ICR, ((u64)1 << core) << 32 | 0x4800 | 0x70);
	if (is("nmi"))
		return command(0x4400);
	if (is("init"))
		return command(0x4500);
	if (is("sipi"))
		return command(0x4608);
	if (is("nmi-to-all"))
		return wrmsrl_safe(ICR, 0x80000 | 0x4400 | 1 << 11);
	if (is("smi"))
		return command(0x4200);
	if (is("vmrun"))
		return RAISES("vmrun", at);
	if (is("vmload"))
		return RAISES("vmload", at);
	if (is("vmsave"))
		return RAISES("vmsave", at);
	if (is("clgi"))
		return RAISES("clgi", 0ul);
	if (is("stgi"))
		return RAISES("stgi", 0ul);
	rdmsrl_safe(MSR_EFER, &efer);
	if (is("svme-clear"))
		return wrmsrl_safe(MSR_EFER, efer & ~EFER_SVME);
	if (is("svme-set"))
		return wrmsrl_safe(MSR_EFER, efer | EFER_SVME);
	if (is("hsave"))
		return wrmsrl_safe(MSR_VM_HSAVE_PA, at);
	if (is("apic-base"))
		return wrmsrl_safe(MSR_IA32_APICBASE, 0xfee00000ull | 1 << 11);
	if (is("release"))
		return release();
	if (is("disable"))
		return disable();
	if (is("read"))
		return reach(false);
	if (is("write"))
		return reach(true);
	if (is("port-fw-cfg")) {
		/* The first byte of its signature, if it answers. */
		outw(0, 0x510);
		return inb(0x511);
	}
	if (is("port-fast-reset"))
		outb(1, 0x92);
	else if (is("port-reset"))
		outb(6, 0xcf9);
	else if (is("port-keyboard"))
		outb(0xfe, 0x64);
	else if (is("port-power"))
		outw(0x2000, 0x604);
	else if (is("port-smi"))
		outb(0, 0xb2);
	else
		return devices();
	mdelay(20);
	return 0;
}

static int __init begin(void)
{
	pr_emerg("bhstrike: %s: begins\n", act);
	pr_emerg("bhstrike: %s: got %ld\n", act, strike());
	return 0;
}

static void __exit end(void)
{
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("Attacks, for tests of an image under a Linux");
MODULE_LICENSE("GPL");
