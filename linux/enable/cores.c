// SPDX-License-Identifier: GPL-2.0
/* Processors of this Linux, by their x2APIC IDs. */
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/smp.h>
#include <asm/apic.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/tsc.h>

#include "enable.h"

u32 bh_own_id(void)
{
	u32 a, b, c, d;

	/* As the start-up code finds it (boot/src/trampoline.rs). */
	cpuid_count(0xb, 0, &a, &b, &c, &d);
	if (cpuid_eax(0) >= 0xb && b)
		return d;
	return cpuid_ebx(1) >> 24;
}

static void own_id(void *id)
{
	*(u32 *)id = bh_own_id();
}

/* In xAPIC mode, the core's logical destinations. */
static void own_names(void *names)
{
	*(u8 *)names = x2apic_enabled() ? 0 : bh_apic_read(APIC_LDR) >> 24;
}

int bh_ids(struct bh_late *late)
{
	int cpu, err;

	late->count = 0;
	for_each_online_cpu(cpu) {
		if (late->count == ARRAY_SIZE(late->cores)) {
			pr_err("bulkhead: more than %zu cores\n", ARRAY_SIZE(late->cores));
			return -E2BIG;
		}
		err = smp_call_function_single(cpu, own_names, &late->names[late->count], 1);
		if (!err)
			err = smp_call_function_single(cpu, own_id, &late->cores[late->count++], 1);
		if (err)
			return err;
	}
	return 0;
}

int bh_cores_of(const struct bh_sandbox *sandbox, struct cpumask *cpus)
{
	u32 core, id;
	int cpu, err;

	cpumask_clear(cpus);
	for (core = 0; core < sandbox->cores && core < BH_CORES; core++) {
		bool found = false;

		for_each_online_cpu(cpu) {
			err = smp_call_function_single(cpu, own_id, &id, 1);
			if (err)
				return err;
			if (id == sandbox->core_ids[core]) {
				cpumask_set_cpu(cpu, cpus);
				found = true;
			}
		}
		if (!found) {
			pr_err("bulkhead: the image wants the core with APIC ID %u, which is not online here: another machine description, or --cores\n",
			       sandbox->core_ids[core]);
			return -ENODEV;
		}
	}
	return 0;
}

void bh_online(const struct cpumask *cpus)
{
	int cpu;

	for_each_cpu(cpu, cpus)
		if (add_cpu(cpu))
			pr_err("bulkhead: core %d does not come back\n", cpu);
}

int bh_offline(const struct cpumask *cpus, struct cpumask *gone)
{
	int cpu, err;

	cpumask_clear(gone);
	for_each_cpu(cpu, cpus) {
		err = remove_cpu(cpu);
		if (err) {
			pr_err("bulkhead: core %d cannot be given away (%d): another core for the sandbox\n", cpu, err);
			bh_online(gone);
			return err;
		}
		cpumask_set_cpu(cpu, gone);
	}
	return 0;
}

static void measure(void *hz)
{
	u64 begin, ticks, count;
	u32 lvt, divisor;

	/* The tick is late by a millisecond, and comes at once then: Linux programs the next one itself. */
	lvt = bh_apic_read(APIC_LVTT);
	divisor = bh_apic_read(APIC_TDCR);
	bh_apic_write(APIC_LVTT, APIC_LVT_MASKED);
	bh_apic_write(APIC_TDCR, APIC_TDR_DIV_1);
	bh_apic_write(APIC_TMICT, ~0u);
	begin = rdtsc_ordered();
	ticks = tsc_khz;
	while (rdtsc_ordered() - begin < ticks)
		cpu_relax();
	count = ~0u - bh_apic_read(APIC_TMCCT);
	ticks = rdtsc_ordered() - begin;
	bh_apic_write(APIC_TDCR, divisor);
	bh_apic_write(APIC_LVTT, lvt);
	if (lvt & APIC_LVT_TIMER_TSCDEADLINE)
		wrmsrl(MSR_IA32_TSC_DEADLINE, rdtsc_ordered() + 1000);
	else
		bh_apic_write(APIC_TMICT, 1000);
	*(u64 *)hz = mul_u64_u64_div_u64(count, (u64)tsc_khz * 1000, ticks);
}

u64 bh_timer_hz(void)
{
	u64 hz = 0;

	smp_call_function_single(0, measure, &hz, 1);
	return hz;
}
