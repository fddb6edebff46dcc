// SPDX-License-Identifier: GPL-2.0
/*
 * The local APIC in both modes. The kernel's own accessors are not exported by each kernel, so this maps the page of
 * xAPIC mode itself.
 */
#include <linux/io.h>
#include <linux/irqflags.h>
#include <asm/apic.h>
#include <asm/msr.h>

#include "enable.h"

static void __iomem *page;

#define X2APIC(reg) (0x800 + ((reg) >> 4))

int bh_apic(void)
{
	u64 base;

	if (x2apic_enabled() || page)
		return 0;
	rdmsrl(MSR_IA32_APICBASE, base);
	if (!(base & MSR_IA32_APICBASE_ENABLE) || (base & MSR_IA32_APICBASE_BASE) != APIC_DEFAULT_PHYS_BASE) {
		pr_err("bulkhead: the local APIC is off, or its page is not at %#x: another firmware, or its defaults\n",
		       APIC_DEFAULT_PHYS_BASE);
		return -ENODEV;
	}
	page = ioremap(APIC_DEFAULT_PHYS_BASE, PAGE_SIZE);
	return page ? 0 : -ENOMEM;
}

void bh_apic_end(void)
{
	if (page)
		iounmap(page);
	page = NULL;
}

u32 bh_apic_read(u32 reg)
{
	u64 value;

	if (page)
		return readl(page + reg);
	rdmsrl(X2APIC(reg), value);
	return value;
}

void bh_apic_write(u32 reg, u32 value)
{
	if (page)
		writel(value, page + reg);
	else
		wrmsrl(X2APIC(reg), value);
}

/* Sends an INIT to a processor that is not this one. */
void bh_init(u32 id)
{
	u32 message = APIC_INT_ASSERT | APIC_DM_INIT;
	ulong flags;
	int looks;

	if (!page) {
		wrmsrl(X2APIC(APIC_ICR), (u64)id << 32 | message);
		return;
	}
	local_irq_save(flags);
	for (looks = 0; looks < 10000 && readl(page + APIC_ICR) & APIC_ICR_BUSY; looks++)
		cpu_relax();
	writel(id << 24, page + APIC_ICR2);
	writel(message, page + APIC_ICR);
	local_irq_restore(flags);
}
