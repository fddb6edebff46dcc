/* SPDX-License-Identifier: GPL-2.0 */
/* The parts of this module. layout.h has the image that starts under this Linux, and what this module tells it. */
#ifndef BULKHEAD_ENABLE_H
#define BULKHEAD_ENABLE_H

#include <linux/types.h>

#include "layout.h"

struct pci_dev;

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

/*
 * devices.c: tells which PCI functions there are; maps their registers above 4 GiB to themselves, and frees that. Tells
 * if this Linux can give functions away; takes them from it, and gives them back.
 */
int bh_functions(struct bh_late *late);
int bh_map_functions(pgd_t *tables);
void bh_unmap_functions(pgd_t *tables);
int bh_find_taken(const struct bh_config_op *ops, u32 count);
int bh_in_use(struct pci_dev *dev);
int bh_take_functions(void);
int bh_found_again(void);
void bh_give_functions(void);

/*
 * ends.c: has the functions of channels come and go, and their driver. Tells if nobody uses one of them. They are those
 * of one channel, by its name, or all of them, without one.
 */
int bh_ends_can_go(const char *channel);
int bh_plug(const char *channel);
int bh_unplug(const char *channel);
int bh_ends_begin(void);
void bh_ends_end(void);

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
