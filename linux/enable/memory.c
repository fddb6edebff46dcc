// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of this Linux for the image and all other sandboxes. A boot memory block goes by hot-unplug: its pages have no
 * struct page any more, so no direct map, no /proc/kcore and no dump.
 */
#include <linux/fs.h>
#include <linux/ioport.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/mm.h>

#include "enable.h"

/* The name outlives the module: /proc/iomem keeps it. */
static char *name;

/*
 * Parts of the kernel's image are children of a piece of RAM in the resource tree. The kernel does not cut that piece
 * before a child: it warns, and leaves all of it where it is. So children leave the tree meanwhile.
 */
static struct resource *ram_with(u64 start, u64 last)
{
	struct resource *ram;

	for (ram = iomem_resource.child; ram; ram = ram->sibling)
		if ((ram->flags & IORESOURCE_SYSTEM_RAM) == IORESOURCE_SYSTEM_RAM && ram->start <= start &&
		    ram->end >= last)
			return ram;
	return NULL;
}

static int cut(u64 start, u64 len)
{
	struct resource *ram = ram_with(start, start + len - 1), *child, *next, *parts[8];
	int count = 0, err;

	for (child = ram ? ram->child : NULL; child; child = next) {
		next = child->sibling;
		if (child->start < start)
			continue;
		if (count == ARRAY_SIZE(parts)) {
			err = -E2BIG;
			goto back;
		}
		release_resource(child);
		parts[count++] = child;
	}
	err = offline_and_remove_memory(start, len);
back:
	while (count--) {
		ram = ram_with(parts[count]->start, parts[count]->end);
		if (!ram || request_resource(ram, parts[count]))
			pr_warn("bulkhead: /proc/iomem lacks %s now\n", parts[count]->name);
	}
	return err;
}

/* What stands in the way of a block, as its pages look now. */
enum holds { NOTHING, PERHAPS, ALWAYS };

static enum holds holds(u64 start, u64 len)
{
	ulong pfn, end = PHYS_PFN(start + len);
	enum holds found = NOTHING;
	struct page *page;

	for (pfn = PHYS_PFN(start); pfn < end; pfn++) {
		page = pfn_to_online_page(pfn);
		/* Set aside at boot: the kernel's image, a crash kernel's memory, tables. */
		if (page && PageReserved(page))
			return ALWAYS;
		/* In use, and none that the kernel moves: not memory of programs or files. */
		if (!page || (page_ref_count(page) && !PageLRU(compound_head(page)) && !__PageMovable(page)))
			found = PERHAPS;
	}
	return found;
}

int bh_take(u64 len, u64 *at)
{
	u64 block = memory_block_size_bytes(), start;
	int tried = 0, err = -ENOMEM;
	enum holds most;

	if (!len || len % block) {
		pr_err("bulkhead: the image takes %llu MiB, and this Linux gives memory in blocks of %llu MiB: say memory = \"%llu MiB\" in [under_linux]\n",
		       len >> 20, block >> 20, max(block, round_up(len, block)) >> 20);
		return -EINVAL;
	}
	/*
	 * Addresses in the image have 31 bits. From the top down: low memory has most that cannot move. A kernel tells its
	 * log of each page that does not move, so blocks without any come first. A look can be wrong.
	 */
	for (most = NOTHING; most <= PERHAPS; most++) {
		for (start = (1ull << 31) - len; start >= len; start -= block) {
			if (region_intersects(start, len, IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY,
					      IORES_DESC_NONE) != REGION_INTERSECTS || holds(start, len) != most)
				continue;
			cond_resched();
			tried++;
			err = cut(start, len);
			if (!err) {
				*at = start;
				return 0;
			}
		}
	}
	pr_err("bulkhead: %d blocks of %llu MiB tried, and not one can be had (%d): free memory, or boot with movable_node or kernelcore=\n",
	       tried, len >> 20, err);
	return err;
}

/* Some kernels leave memory that comes offline, by their configuration. Writing to sysfs is what a user would do. */
static void online(u64 at, u64 len)
{
	u64 block = memory_block_size_bytes(), end = at + len;
	struct file *state;
	char path[64];
	loff_t from;

	for (; at < end; at += block) {
		snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%llu/state", at / block);
		state = filp_open(path, O_WRONLY, 0);
		if (IS_ERR(state)) {
			pr_err("bulkhead: memory at %#llx is back, and offline: echo online > %s\n", at, path);
			continue;
		}
		from = 0;
		/* Memory that is online already refuses that. */
		kernel_write(state, "online", 6, &from);
		filp_close(state, NULL);
	}
}

int bh_give(u64 at, u64 len)
{
	int err;

	if (!name)
		name = kstrdup("System RAM (bulkhead)", GFP_KERNEL);
	if (!name)
		return -ENOMEM;
	err = add_memory_driver_managed(0, at, len, name, MHP_NONE);
	if (err)
		pr_err("bulkhead: memory at %#llx does not come back (%d)\n", at, err);
	else
		online(at, len);
	return err;
}
