/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Layouts of crates/host/image and crates/abi/handover, from which a test derives this
 * file: BLESS=1 cargo test -p bulkhead-image writes it anew.
 */
#ifndef BULKHEAD_ENABLE_LAYOUT_H
#define BULKHEAD_ENABLE_LAYOUT_H

#include <linux/build_bug.h>
#include <linux/types.h>

#define BH_FILE_MAGIC 0x315245444e554842ull
#define BH_FILE_VERSION 0x2
#define BH_HEADER_VERSION 0x9
#define BH_HEADER_WORD 0x100
#define BH_LATE_WORD 0x108
#define BH_PREPARE 0x0
#define BH_ENTER 0x1
#define BH_CONFINE 0x2
#define BH_RESTORE 0x3
#define BH_TAKE 0xc
#define BH_TAKE_PORTS 0xd
#define BH_SANDBOXES 0x20
#define BH_CORES 0x10
#define BH_ENDS 0x4106110a
#define BH_ENDS_SUBSYSTEM 0x4248
#define BH_ENDS_CLASS 0xff4248
#define BH_ENDS_NAME 0x70
#define BH_ENDS_NAME_LEN 0x20
#define BH_RELEASE 0x4248000e
#define BH_NULL 0x42480000
#define BH_OK 0x0ull
#define BH_BUSY 0xfffffffffffffffcull

struct bh_range {
	u64 start;
	u64 len;
};
static_assert(sizeof(struct bh_range) == 16);

/* Head of a file of `bulkhead build --under-linux`: image and relocations follow. */
struct bh_file {
	u64 magic;
	u64 version;
	u64 base;
	u64 image;
	u64 relocations;
	u64 block;
	u64 checksum;
	u64 reserved;
};
static_assert(sizeof(struct bh_file) == 64);

/* In the image: the architecture's own part follows, and then the sandboxes. */
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
static_assert(sizeof(struct bh_header) == 128);

struct bh_sandbox {
	struct bh_range memory[2];
	struct bh_range monitor;
	u64 monitor_root;
	u64 entry_va;
	u64 spare_root;
	u64 spare_entry_va;
	u64 info_pa;
	u32 cores;
	u32 core_ids[16];
	u32 reserved;
};
static_assert(sizeof(struct bh_sandbox) == 160);

/* Behind the sandboxes. */
struct bh_config_op {
	u16 bdf;
	u16 offset;
	u32 kind;
	u32 value;
};
static_assert(sizeof(struct bh_config_op) == 12);

/* Words between this Linux and the image's code. */
struct bh_late {
	u64 hz;
	u64 timer_hz;
	struct bh_range zeros;
	u32 cores[64];
	u8 names[64];
	u16 functions[256];
	u32 function_count;
	u32 ioapics;
	u32 count;
	u32 len;
	u32 mute;
	u32 iommus;
	u64 boot_params;
	u8 says[256];
};
static_assert(sizeof(struct bh_late) == 1152);

#endif
