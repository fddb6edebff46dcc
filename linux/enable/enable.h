/* SPDX-License-Identifier: GPL-2.0 */
/* The image that starts under this Linux, and what this module tells it. */
#ifndef BULKHEAD_ENABLE_H
#define BULKHEAD_ENABLE_H

#include <linux/types.h>

/* Head of a file of `bulkhead build --under-linux` (crates/host/image/src/late.rs). */
struct bh_file {
	u64 magic;
	u64 version;
	u64 base; /* address that it was built for */
	u64 image; /* bytes of the image, behind this head */
	u64 relocations; /* then offsets of 64-bit words that move with it */
	u64 block; /* bytes of memory that it takes */
	u64 checksum; /* over image and relocations */
	u64 reserved;
};

#define BH_FILE_MAGIC 0x315245444e554842ull /* "BHUNDER1" */
#define BH_FILE_VERSION 1

struct bh_range {
	u64 start;
	u64 len;
};

/* crates/abi/handover/src/image.rs: Header, whose own part and sandboxes follow. */
struct bh_header {
	u64 magic;
	u64 checksum;
	u32 version;
	u32 sandboxes;
	struct bh_range image;
	u64 sealed;
	struct bh_range boot;
	u32 config_ops;
	u32 own;
	struct bh_range launch;
	u64 monitors;
	struct bh_range running;
	struct bh_range block;
};

#define BH_HEADER_VERSION 9
#define BH_CORES 16

/* Likewise: Sandbox. */
struct bh_sandbox {
	struct bh_range memory[2];
	struct bh_range monitor;
	u64 monitor_root;
	u64 entry_va;
	u64 spare_root;
	u64 spare_entry_va;
	u64 info_pa;
	u32 cores;
	u32 core_ids[BH_CORES];
	u32 reserved;
};

/* crates/abi/handover/src/x86/late.rs: Late. */
struct bh_late {
	u64 hz;
	u64 timer_hz;
	struct bh_range zeros;
	u32 cores[64];
	u8 names[64];
	u16 functions[256];
	u32 function_count;
	u32 reserved;
	u32 count;
	u32 len;
	u32 mute;
	u32 reserved_2;
	char says[256];
};

#define BH_PREPARE 0
#define BH_ENTER 1
#define BH_CONFINE 2
#define BH_RESTORE 3

/* Words at the image's start: address of its header, and of its code for this module. */
#define BH_HEADER_WORD 256
#define BH_LATE_WORD 264

/* Hypercall (docs/hypercalls.md), and its results. */
#define BH_RELEASE 0x4248000e
#define BH_OK 0ull
#define BH_BUSY (~0ull - 3)

/* memory.c: takes memory from this Linux, and gives it back. */
int bh_take(u64 len, u64 *at);
int bh_give(u64 at, u64 len);

/* cores.c: tells which processors have which x2APIC IDs; takes them and gives them back. */
int bh_cores_of(const struct bh_sandbox *sandbox, struct cpumask *cpus);
int bh_ids(struct bh_late *late);
u32 bh_own_id(void);
int bh_offline(const struct cpumask *cpus, struct cpumask *gone);
void bh_online(const struct cpumask *cpus);
u64 bh_timer_hz(void);

/* devices.c: tells which PCI functions there are; maps their registers above 4 GiB to themselves, and frees that. */
int bh_functions(struct bh_late *late);
int bh_map_functions(pgd_t *tables);
void bh_unmap_functions(pgd_t *tables);

/* apic.c: the local APIC of the processor that this runs on, in xAPIC or in x2APIC mode. Registers by their offset. */
int bh_apic(void);
void bh_apic_end(void);
u32 bh_apic_read(u32 reg);
void bh_apic_write(u32 reg, u32 value);
void bh_init(u32 id);

/* switch.S: both run on tables that map the first 4 GiB to themselves, too, and return on the Linux' own. */
u64 bh_call(u64 code, u64 what, u64 argument, u64 tables);
u64 bh_release(u64 tables, u64 call);

#endif
