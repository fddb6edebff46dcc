// SPDX-License-Identifier: GPL-2.0
/*
 * Starts an image of Bulkhead under this Linux, which is a sandbox from then on, and ends it again. See
 * docs/under-linux.md.
 *
 * Everything that can be known is checked first. Then memory and cores are taken, each step undone if a later one
 * fails. Last, all cores enter their monitors at once.
 */
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/kmod.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>
#include <linux/timekeeping.h>
#include <linux/suspend.h>
#include <linux/uaccess.h>
#include <asm/apic.h>
#include <asm/asm.h>
#include <asm/msr.h>
#include <asm/pgtable.h>
#include <asm/special_insns.h>
#include <asm/tsc.h>

#include "enable.h"
#include "uapi.h"

static ulong timer_hz;
module_param(timer_hz, ulong, 0444);
MODULE_PARM_DESC(timer_hz, "rate of the local APIC's timer, in Hz; 0: measured");

static int fail;
module_param(fail, int, 0600);
MODULE_PARM_DESC(fail, "number of a step of enabling that fails, for tests: 1 tables, 2 memory, 3 image, 4 division, 5 cores, 6 start of others, 7 the last of their cores, 8 entry of the last own core, 9 its entry in time; of disabling: 10 release of all cores but one; of enabling: 11 devices");

/* Tells if a test wants this step to fail. */
static bool fails(int step)
{
	if (fail != step)
		return false;
	pr_err("bulkhead: step %d fails, as it was told to\n", step);
	return true;
}

static DEFINE_MUTEX(lock);

/* The image that runs. */
static struct {
	u64 at, len;
	void *va;
	struct bh_sandbox root;
	struct bh_late *late;
	/* Page tables of the Linux' own half, and the first 4 GiB. */
	pgd_t *tables;
	struct cpumask gone;
	u32 others[NR_CPUS];
	u32 count;
	bool on;
	/* Its monitor answers for the configuration space: the image has steps for functions then. */
	bool mediated;
	/* Nanoseconds: of the longest call with interrupts off, of the entry of all cores, of all. */
	u64 longest, entry, whole;
} machine;

static void free_tables(pgd_t *tables)
{
	pud_t *puds;
	int i;

	if (!tables)
		return;
	bh_unmap_functions(tables);
	if (pgd_val(tables[0])) {
		puds = (pud_t *)__va(pgd_val(tables[0]) & PTE_PFN_MASK);
		for (i = 0; i < 4; i++)
			if (pud_val(puds[i]))
				free_page((ulong)__va(pud_val(puds[i]) & PTE_PFN_MASK));
		free_page((ulong)puds);
	}
	/* Two pages: with page-table isolation, the second one would be user space's. */
	free_pages((ulong)tables, 1);
}

static pgd_t *make_tables(void)
{
	pgd_t *tables = (pgd_t *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, 1), *own = __va(read_cr3_pa());
	u64 *puds = (u64 *)get_zeroed_page(GFP_KERNEL), *pmds;
	int i, j;

	if (!tables || !puds)
		goto none;
	memcpy(tables + 256, own + 256, 256 * sizeof(*tables));
	/* Present, writable; of the kernel. */
	tables[0] = __pgd(__pa(puds) | _PAGE_PRESENT | _PAGE_RW);
	for (i = 0; i < 4; i++) {
		pmds = (u64 *)get_zeroed_page(GFP_KERNEL);
		if (!pmds) {
			free_tables(tables);
			return NULL;
		}
		puds[i] = __pa(pmds) | _PAGE_PRESENT | _PAGE_RW;
		for (j = 0; j < 512; j++)
			pmds[j] = (u64)i << 30 | (u64)j << 21 | _PAGE_PSE | _PAGE_PRESENT | _PAGE_RW;
		/* The image lies in the first half. In the other one its code writes to registers. */
		for (j = 0; i >= 2 && j < 512; j++)
			pmds[j] |= _PAGE_PCD | _PAGE_PWT;
	}
	if (bh_map_functions(tables)) {
		free_tables(tables);
		return NULL;
	}
	return tables;
none:
	free_pages((ulong)tables, 1);
	free_page((ulong)puds);
	return NULL;
}

/* As crates/abi/handover/src/image.rs has it. */
static u64 checksum(const u64 *words, u64 count)
{
	u64 sum = 0, sums = 0;

	for (; count; count--) {
		sum += *words++;
		sums += sum;
		sums = sums << 1 | sums >> 63;
		if (!(count & 0xfffff))
			cond_resched();
	}
	return sum ^ sums;
}

/* Tells if a monitor is below this kernel: that of an image which this Linux has not started in this life. */
static bool below(void)
{
	u64 result = BH_NULL;

	/* Without a monitor the instruction is undefined, or another hypervisor's. */
	asm volatile("1: vmmcall\n2:\n" _ASM_EXTABLE(1b, 2b) : "+a"(result) : : "memory");
	return result == BH_OK;
}

/* What can be known before anything is taken. */
static int known(const struct bh_file *file, u64 len)
{
	if (boot_cpu_data.x86_vendor == X86_VENDOR_AMD && below()) {
		pr_err("bulkhead: this Linux is a sandbox already, that began anew: reboot the machine\n");
		return -EPERM;
	}
	if (file->magic != BH_FILE_MAGIC) {
		pr_err("bulkhead: no image that starts under a Linux: bulkhead build --under-linux makes one\n");
		return -ENOEXEC;
	}
	if (file->version != BH_FILE_VERSION) {
		pr_err("bulkhead: the image has version %llu, and this module knows %d: build it with this release\n",
		       file->version, BH_FILE_VERSION);
		return -ENOEXEC;
	}
	if (!file->image || file->image % PAGE_SIZE || file->image > file->block || file->block > 1ull << 31 ||
	    file->relocations > file->image / 8 ||
	    file->image + round_up(file->relocations * 4, 8) > file->block ||
	    len != sizeof(*file) + file->image + round_up(file->relocations * 4, 8)) {
		pr_err("bulkhead: the image is cut or damaged: copy or build it again\n");
		return -EINVAL;
	}
	if (!boot_cpu_has(X86_FEATURE_SVM)) {
		pr_err("bulkhead: the processor has no SVM (AMD virtualization), or the firmware has switched it off\n");
		return -ENODEV;
	}
	if (bh_apic())
		return -ENODEV;
	if (!tsc_khz) {
		pr_err("bulkhead: this Linux does not know the rate of the time stamp counter\n");
		return -ENODEV;
	}
	return 0;
}

static u64 call(u64 what, u64 argument)
{
	u64 code = *(u64 *)(machine.va + BH_LATE_WORD), result, begin;
	ulong flags;

	local_irq_save(flags);
	begin = ktime_get_ns();
	result = bh_call(code, what, argument, __pa(machine.tables));
	machine.longest = max(machine.longest, ktime_get_ns() - begin);
	local_irq_restore(flags);
	return result;
}

/* How far each core has come; told where one does not enter its monitor. */
enum step { WAITS, CALLS, REFUSED, LATE, INSIDE, BACK };

static const char *const steps[] = {
	[WAITS] = "it did not begin", [CALLS] = "it has not come out of its monitor",
	[REFUSED] = "the image's code refused it", [LATE] = "it came too late",
	[INSIDE] = "it is in its monitor", [BACK] = "it has left its monitor again",
};

static u8 step_of[NR_CPUS];

/* All cores enter their monitors, or none. The first core that knows decides for all. */
enum { OPEN, ALL, NONE };
static atomic_t entered, decision;

/* Devices are confined, or cannot be (-1). */
static atomic_t confined;

/* Cores that have no monitor, or none any more. */
static atomic_t outside;

/* Milliseconds that a core waits for the others in its monitor. */
#define PATIENCE 1000

/* The machine back: the sandbox' first core asks, and its answer is that for all. */
enum { UNASKED, GRANTED, DENIED };
static atomic_t answer;

static bool leads(void)
{
	return bh_own_id() == machine.root.core_ids[0];
}

static bool release(void)
{
	u8 *step = &step_of[smp_processor_id()];
	bool granted = *step == BACK, first = leads();
	u64 efer;

	/* Behind the first one, a monitor leaves each core; it leaves none before. */
	while (!first && atomic_read(&answer) == UNASKED)
		cpu_relax();
	if (!granted && (first || atomic_read(&answer) == GRANTED))
		granted = bh_release(__pa(machine.tables), BH_RELEASE) == BH_OK;
	if (first)
		atomic_set(&answer, granted ? GRANTED : DENIED);
	if (!granted || *step == BACK)
		return granted;
	rdmsrl(MSR_EFER, efer);
	wrmsrl(MSR_VM_HSAVE_PA, 0);
	wrmsrl(MSR_EFER, efer & ~EFER_SVME);
	*step = BACK;
	atomic_inc(&outside);
	return true;
}

/* Devices' interrupts are this Linux' again once no monitor has a core. All cores have stopped until then. */
static void give_devices(struct bh_late *late)
{
	u64 begin = rdtsc_ordered();

	if (!leads())
		return;
	/* One that comes late has its own patience. */
	while (atomic_read(&outside) < machine.root.cores && rdtsc_ordered() - begin < 4ull * tsc_khz * PATIENCE)
		cpu_relax();
	if (atomic_read(&outside) == machine.root.cores && atomic_cmpxchg(&confined, 1, 0) == 1)
		call(BH_RESTORE, (ulong)late);
}

static int enter(void *late)
{
	u32 core, id = bh_own_id(), cpu = smp_processor_id();
	u64 begin = rdtsc_ordered();
	u8 *step = &step_of[cpu];

	for (core = 0; core < machine.root.cores; core++)
		if (machine.root.core_ids[core] == id)
			break;
	/* Only a test has a core that comes late, or is refused. */
	while (fail == 9 && core + 1 == machine.root.cores && rdtsc_ordered() - begin < 2ull * tsc_khz * PATIENCE)
		cpu_relax();
	if (fail == 8 && core + 1 == machine.root.cores)
		core = BH_CORES;
	*step = LATE;
	if (!core)
		atomic_set(&confined, call(BH_CONFINE, (ulong)late) ? -1 : 1);
	/* It enters first, so it can let the others leave if one of them does not come. */
	while (core && !atomic_read(&entered) && atomic_read(&decision) == OPEN &&
	       rdtsc_ordered() - begin < (u64)tsc_khz * PATIENCE)
		cpu_relax();
	if ((!core || atomic_read(&entered)) && atomic_read(&confined) == 1 && atomic_read(&decision) == OPEN) {
		*step = CALLS;
		*step = call(BH_ENTER, core) ? REFUSED : INSIDE;
	}
	if (*step == INSIDE && atomic_inc_return(&entered) == machine.root.cores)
		atomic_cmpxchg(&decision, OPEN, ALL);
	else if (*step != INSIDE)
		atomic_cmpxchg(&decision, OPEN, NONE);
	while (atomic_read(&decision) == OPEN) {
		if (rdtsc_ordered() - begin > (u64)tsc_khz * PATIENCE)
			atomic_cmpxchg(&decision, OPEN, NONE);
		cpu_relax();
	}
	if (atomic_read(&decision) == ALL)
		return 0;
	/* No monitor leaves if another sandbox has begun: then all cores have come, if late. */
	if (*step == INSIDE)
		release();
	else
		atomic_inc(&outside);
	give_devices(late);
	return 0;
}

static int leave(void *late)
{
	/* Only a test has cores that stay. */
	if ((fail != 10 || !smp_processor_id()) && release())
		give_devices(late);
	return 0;
}

/* Lets all cores enter their monitors. If one does not, those that have are back. */
static int enter_all(struct bh_late *late)
{
	int cpu, err;

	atomic_set(&entered, 0);
	atomic_set(&outside, 0);
	atomic_set(&confined, 0);
	atomic_set(&decision, OPEN);
	atomic_set(&answer, UNASKED);
	memset(step_of, WAITS, sizeof(step_of));
	err = stop_machine(enter, late, cpu_online_mask);
	if (err)
		pr_err("bulkhead: the cores cannot be stopped (%d)\n", err);
	if (err || atomic_read(&decision) == ALL || atomic_read(&answer) == DENIED)
		return err;
	if (atomic_read(&confined) < 0) {
		pr_err("%.*s", (int)min_t(u32, late->len, sizeof(late->says)), late->says);
		return -EIO;
	}
	for_each_online_cpu(cpu)
		if (step_of[cpu] != BACK)
			pr_err("bulkhead: core %d did not enter its monitor: %s; all is undone\n", cpu, steps[step_of[cpu]]);
	return -EIO;
}

/* Sends an INIT to each core of other sandboxes: it waits for a start-up then, and runs nothing of the image's. */
static void reset_others(void)
{
	u32 i;

	for (i = 0; i < machine.count; i++)
		bh_init(machine.others[i]);
	udelay(100);
}

/* Gives memory and cores back. */
static int undo(void)
{
	/* Devices look at tables in the block, so nobody else gets that. */
	if (atomic_read(&confined) == 1) {
		pr_err("bulkhead: devices were not given back, and the block stays as it is: reboot this machine\n");
		return -EIO;
	}
	if (machine.va) {
		memset(machine.va, 0, machine.len);
		memunmap(machine.va);
		machine.va = NULL;
	}
	if (machine.at) {
		bh_give(machine.at, machine.len);
		machine.at = 0;
	}
	bh_online(&machine.gone);
	cpumask_clear(&machine.gone);
	/* Their drivers want interrupts on all cores. */
	bh_give_functions();
	free_tables(machine.tables);
	machine.tables = NULL;
	return 0;
}

/* Copies the image to its memory, and moves it there. */
static int place(const struct bh_file *file, const u8 __user *from)
{
	u64 relocations = round_up(file->relocations * 4, 8), delta, word, i;
	const u32 *offsets;

	if (copy_from_user(machine.va, from + sizeof(*file), file->image + relocations))
		return -EFAULT;
	if (checksum(machine.va, (file->image + relocations) / 8) != file->checksum) {
		pr_err("bulkhead: the image is damaged: its checksum does not match; copy or build it again\n");
		return -EINVAL;
	}
	delta = machine.at - file->base;
	offsets = machine.va + file->image;
	for (i = 0; i < file->relocations; i++) {
		if (offsets[i] > file->image - 8) {
			pr_err("bulkhead: the image is damaged: it moves words beyond its end\n");
			return -EINVAL;
		}
		/* Fields lie anywhere. */
		memcpy(&word, machine.va + offsets[i], sizeof(word));
		word += delta;
		memcpy(machine.va + offsets[i], &word, sizeof(word));
	}
	/* No sandbox reaches what is left in the block of before: the launch clears memory and channels. */
	memset(machine.va + file->image, 0, relocations);
	return 0;
}

/* Finds which functions and cores go, and that no other core stays without an owner. */
static int divide(struct bh_late *late, struct cpumask *given)
{
	u64 at = *(u64 *)(machine.va + BH_HEADER_WORD) - machine.at;
	const struct bh_sandbox *sandboxes;
	const struct bh_config_op *ops;
	const struct bh_header *header;
	struct cpumask *some;
	u32 n, core;
	int err = 0;

	if (at > machine.len - sizeof(*header) - PAGE_SIZE - BH_SANDBOXES * sizeof(*sandboxes))
		goto damaged;
	header = machine.va + at;
	if (header->version != BH_HEADER_VERSION || !header->sandboxes || header->sandboxes > BH_SANDBOXES ||
	    header->own > PAGE_SIZE || !header->running.len || header->block.start != machine.at)
		goto damaged;
	sandboxes = (void *)(header + 1) + header->own;
	ops = (void *)(sandboxes + header->sandboxes);
	if (header->config_ops > (machine.va + machine.len - (void *)ops) / sizeof(*ops))
		goto damaged;
	machine.mediated = header->config_ops;
	err = bh_find_taken(ops, header->config_ops);
	if (err)
		return err;
	some = kmalloc(sizeof(*some), GFP_KERNEL);
	if (!some)
		return -ENOMEM;
	cpumask_clear(given);
	machine.count = 0;
	for (n = 0; n + 1 < header->sandboxes && !err; n++) {
		err = bh_cores_of(&sandboxes[n], some);
		cpumask_or(given, given, some);
		for (core = 0; core < sandboxes[n].cores && core < BH_CORES && machine.count < NR_CPUS; core++)
			machine.others[machine.count++] = sandboxes[n].core_ids[core];
	}
	machine.root = sandboxes[header->sandboxes - 1];
	machine.root.cores = min_t(u32, machine.root.cores, BH_CORES);
	if (!err)
		err = bh_cores_of(&machine.root, some);
	cpumask_or(some, some, given);
	if (!err && !cpumask_equal(some, cpu_online_mask)) {
		pr_err("bulkhead: the image is for %u cores, and %u are online here: bulkhead build --cores\n",
		       cpumask_weight(some), num_online_cpus());
		err = -EINVAL;
	}
	kfree(some);
	return err ? err : bh_ids(late);
damaged:
	pr_err("bulkhead: the image is damaged, or of another release: build it again\n");
	return -EINVAL;
}

/* Memory map, screen, ACPI: a kernel that begins anew gets them. NULL where this kernel does not tell. */
static void *boot_params(void)
{
	struct file *file = filp_open("/sys/kernel/boot_params/data", O_RDONLY, 0);
	void *page;
	loff_t from = 0;

	if (IS_ERR(file))
		return NULL;
	page = (void *)get_zeroed_page(GFP_KERNEL);
	if (page && kernel_read(file, page, PAGE_SIZE, &from) != PAGE_SIZE) {
		free_page((ulong)page);
		page = NULL;
	}
	filp_close(file, NULL);
	return page;
}

static int enable(const struct bh_bytes *image)
{
	const u8 __user *from = (const u8 __user *)(uintptr_t)image->address;
	struct bh_file file;
	struct bh_late *late;
	struct cpumask *given;
	u64 result, begin = ktime_get_ns(), entry;
	bool others = false, held = false;
	int err;

	if (machine.on)
		return -EALREADY;
	if (atomic_read(&confined) == 1) {
		pr_err("bulkhead: devices were not given back by the last image: reboot this machine\n");
		return -EIO;
	}
	machine.longest = 0;
	if (image->len < sizeof(file) || copy_from_user(&file, from, sizeof(file)))
		return -EFAULT;
	err = known(&file, image->len);
	if (err)
		return err;
	late = kzalloc(sizeof(*late), GFP_KERNEL);
	given = kzalloc(sizeof(*given), GFP_KERNEL);
	machine.tables = make_tables();
	err = -ENOMEM;
	if (!late || !given || !machine.tables || fails(1))
		goto failed;
	err = bh_functions(late);
	if (err)
		goto failed;
	late->hz = (u64)tsc_khz * 1000;
	late->timer_hz = timer_hz ? timer_hz : bh_timer_hz();
	machine.len = file.block;
	err = bh_take(machine.len, &machine.at);
	if (!err && fails(2))
		err = -EIO;
	if (err)
		goto failed;
	machine.va = memremap(machine.at, machine.len, MEMREMAP_WB);
	err = machine.va ? place(&file, from) : -ENOMEM;
	if (!err && fails(3))
		err = -EIO;
	if (!err)
		err = divide(late, given);
	if (!err && fails(4))
		err = -EIO;
	if (!err)
		err = bh_take_functions();
	if (!err && fails(11))
		err = -EIO;
	if (!err)
		err = bh_offline(given, &machine.gone);
	if (!err && fails(5))
		err = -EIO;
	if (!err)
		err = bh_found_again();
	if (err)
		goto failed;
	/* The cores that go are others' from here on. */
	cpu_hotplug_disable();
	held = true;
	/* Only a test has a core that is not started. */
	late->mute = fail == 7 && machine.count ? machine.others[machine.count - 1] : ~0u;
	others = true;
	late->boot_params = (ulong)boot_params();
	result = call(BH_PREPARE, (ulong)late);
	free_page(late->boot_params);
	late->boot_params = 0;
	if (result)
		pr_err("%.*s", (int)min_t(u32, late->len, sizeof(late->says)), late->says);
	err = -EIO;
	if (result || fails(6))
		goto failed;
	entry = ktime_get_ns();
	err = enter_all(late);
	if (err)
		goto failed;
	machine.entry = ktime_get_ns() - entry;
	machine.whole = ktime_get_ns() - begin;
	machine.on = true;
	__module_get(THIS_MODULE);
	kfree(given);
	machine.late = late;
	pr_info("bulkhead: %llu MiB at %#llx and %u cores are other sandboxes' now; %llu us in all, %llu of them with all cores stopped\n",
		machine.len >> 20, machine.at, machine.count, machine.whole / 1000, machine.entry / 1000);
	if (machine.mediated)
		bh_plug(NULL);
	return 0;
failed:
	if (others)
		reset_others();
	if (held)
		cpu_hotplug_enable();
	/* Devices would look at memory of a module that is gone. */
	if (undo())
		__module_get(THIS_MODULE);
	kfree(given);
	kfree(late);
	return err;
}

static int disable(void)
{
	int err;

	if (!machine.on)
		return -ENOENT;
	/* While its monitor still answers for them. */
	err = machine.mediated ? bh_unplug(NULL) : 0;
	if (err)
		return err;
	atomic_set(&answer, UNASKED);
	err = stop_machine(leave, machine.late, cpu_online_mask);
	if (!err && atomic_read(&answer) != GRANTED) {
		pr_err("bulkhead: other sandboxes run: bulkheadctl list shows them, bulkheadctl stop ends one\n");
		err = -EBUSY;
	}
	if (!err && fails(10))
		err = -EIO;
	if (err && machine.mediated)
		bh_plug(NULL);
	if (err)
		return err;
	cpu_hotplug_enable();
	reset_others();
	machine.on = false;
	kfree(machine.late);
	machine.late = NULL;
	/* The module stays with the block, and nothing is enabled again. */
	err = undo();
	if (err)
		return err;
	module_put(THIS_MODULE);
	pr_info("bulkhead: this Linux has its machine again\n");
	return 0;
}

/* Has the functions of a channel come or go. */
static int end_of(const struct bh_bytes *bytes, int (*does)(const char *channel))
{
	char name[BH_ENDS_NAME_LEN + 1] = {};

	if (!bytes->len || bytes->len > BH_ENDS_NAME_LEN)
		return -EINVAL;
	if (copy_from_user(name, (void __user *)(uintptr_t)bytes->address, bytes->len))
		return -EFAULT;
	return does(name);
}

static long control(struct file *unused, unsigned int request, unsigned long argument)
{
	struct bh_bytes bytes = {};
	struct bh_state state = {};
	long err;

	if (_IOC_SIZE(request) == sizeof(bytes) && copy_from_user(&bytes, (void __user *)argument, sizeof(bytes)))
		return -EFAULT;

	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	switch (request) {
	case BH_ENABLE:
		err = enable(&bytes);
		break;
	case BH_PLUG:
		err = end_of(&bytes, bh_plug);
		break;
	case BH_UNPLUG:
		err = end_of(&bytes, bh_unplug);
		break;
	case BH_DISABLE:
		err = disable();
		break;
	case BH_STATE:
		state.on = machine.on;
		/* Also a block that stays lost. */
		state.at = machine.at;
		state.len = machine.at ? machine.len : 0;
		state.longest = machine.longest;
		state.entry = machine.entry;
		state.whole = machine.whole;
		err = copy_to_user((void __user *)argument, &state, sizeof(state)) ? -EFAULT : 0;
		break;
	default:
		err = -ENOTTY;
	}
	mutex_unlock(&lock);
	return err;
}

/* A sandbox cannot put the machine to sleep. */
static int sleeps(struct notifier_block *unused, unsigned long event, void *data)
{
	bool begins = event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE;

	return begins && machine.on ? notifier_from_errno(-EBUSY) : NOTIFY_DONE;
}

static struct notifier_block sleep_notifier = { .notifier_call = sleeps };

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = control,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "bulkhead",
	.fops = &operations,
	.mode = 0600,
};

static int __init begin(void)
{
	int err = bh_ends_begin();

	if (err)
		return err;
	err = misc_register(&device);
	if (err)
		bh_ends_end();
	else
		register_pm_notifier(&sleep_notifier);
	return err;
}

static void __exit end(void)
{
	unregister_pm_notifier(&sleep_notifier);
	bh_apic_end();
	misc_deregister(&device);
	bh_ends_end();
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("Starts Bulkhead under this Linux");
MODULE_LICENSE("GPL");
