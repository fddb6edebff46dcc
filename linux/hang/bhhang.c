// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: a driver that hangs, with interrupts off, on the core that loads it.
 * `after_ms` is the time from its loading on.
 */
#include <linux/irqflags.h>
#include <linux/delay.h>
#include <linux/module.h>

static uint after_ms;
module_param(after_ms, uint, 0);

static int __init bhhang_init(void)
{
	msleep(after_ms);
	pr_emerg("bhhang: hangs\n");
	local_irq_disable();
	for (;;)
		cpu_relax();
	return 0;
}

module_init(bhhang_init);
MODULE_DESCRIPTION("Hangs, for tests of watchdogs");
MODULE_LICENSE("GPL");
