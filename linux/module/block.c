// SPDX-License-Identifier: GPL-2.0
/*
 * Disks (virtio 1.2, 5.2). A driver sees a configuration that is made here, of what the
 * device side says and of what the sections can hold: each request that the driver makes
 * has room in them, and no number makes a kernel complain.
 */
#include <linux/blkdev.h>
#include <linux/cpumask.h>
#include <linux/log2.h>
#include <linux/minmax.h>

#include "bulkhead_virtio.h"

/* Descriptors of a request besides its data's: header and status. */
#define EXTRA 2
/* Sectors whose bytes a file offset can count. */
#define SECTORS (LLONG_MAX >> 9)
/*
 * A segment is as long as leaves so many of them, and no longer than a kernel's own default.
 * Each segment costs a driver some hundred instructions; pages that lie apart need one each.
 */
#define SEGMENTS 32
#define LONGEST 65536
/* What a kernel takes as the unit of what is discarded, at most, in sectors. */
#define UNIT 32768

static bool has(u64 features, unsigned int bit)
{
	return features >> bit & 1;
}

/* Left out: what a driver changes or asks for beside its requests; zones. */
u64 bh_block_features(void)
{
	const u64 one = 1;

	return one << VIRTIO_BLK_F_SIZE_MAX | one << VIRTIO_BLK_F_SEG_MAX |
	       one << VIRTIO_BLK_F_RO | one << VIRTIO_BLK_F_BLK_SIZE |
	       one << VIRTIO_BLK_F_FLUSH | one << VIRTIO_BLK_F_MQ |
	       one << VIRTIO_BLK_F_DISCARD | one << VIRTIO_BLK_F_WRITE_ZEROES;
}

/*
 * How many queues there are. A driver has one for each processor at most, so that sections
 * are not divided for queues that nobody uses.
 */
static const char *count(struct virtio_blk_config *to, const struct virtio_blk_config *from,
			 u64 features, unsigned int *queues)
{
	u16 some = le16_to_cpu((__force __le16)from->num_queues);

	if (!has(features, VIRTIO_BLK_F_MQ))
		some = 1;
	if (!some || some > *queues)
		return "a disk with another number of queues than it says";
	*queues = min_t(unsigned int, some, nr_cpu_ids);
	to->num_queues = (__force __virtio16)cpu_to_le16(*queues);
	return NULL;
}

/*
 * Number and length of a request's segments: any request has room in any queue, both
 * in its descriptors and in its share of the sections. The mirror makes one area of them
 * all, so the device side bounds only their sum.
 */
static const char *bound(struct virtio_blk_config *to, const struct virtio_blk_config *from,
			 u64 features, unsigned int queues, const u16 *sizes, u32 section)
{
	u32 num = sizes[0], most = num, size = PAGE_SIZE, bytes, segments;
	unsigned int n;

	if (!has(features, VIRTIO_BLK_F_SIZE_MAX) || !has(features, VIRTIO_BLK_F_SEG_MAX))
		return "a disk without bounds of its requests";
	if (le32_to_cpu((__force __le32)from->size_max) < size || !from->seg_max)
		return "a disk whose requests would be shorter than a page";
	for (n = 1; n < queues; n++) {
		num = min_t(u32, num, sizes[n]);
		most = max_t(u32, most, sizes[n]);
	}
	/* Data and header one way, or data and status the other. */
	bytes = room(section, queues);
	bytes -= min(bytes, headers(most) + BH_HEADER);
	bytes = min_t(u64, bytes,
		      (u64)le32_to_cpu((__force __le32)from->size_max) *
			      le32_to_cpu((__force __le32)from->seg_max));
	while (size < LONGEST && bytes / (2 * size) >= SEGMENTS)
		size *= 2;
	segments = min(bytes / size, num - min_t(u32, num, EXTRA));
	if (!segments)
		return "a disk whose requests find no room";
	to->size_max = (__force __virtio32)cpu_to_le32(size);
	to->seg_max = (__force __virtio32)cpu_to_le32(segments);
	return NULL;
}

/* Capacity and size of a block. */
static const char *extent(struct virtio_blk_config *to, const struct virtio_blk_config *from,
			  u64 features)
{
	u64 capacity = le64_to_cpu((__force __le64)from->capacity);
	u32 block = le32_to_cpu((__force __le32)from->blk_size);

	if (!has(features, VIRTIO_BLK_F_BLK_SIZE))
		block = SECTOR_SIZE;
	if (block < SECTOR_SIZE || block > PAGE_SIZE || !is_power_of_2(block))
		return "a disk with blocks of a size that cannot be";
	if (capacity > SECTORS || capacity & (block / SECTOR_SIZE - 1))
		return "a disk of a size that cannot be";
	to->capacity = from->capacity;
	to->blk_size = (__force __virtio32)cpu_to_le32(block);
	return NULL;
}

const char *bh_block_config(struct virtio_blk_config *to, const struct virtio_blk_config *from,
			    u64 features, unsigned int *queues, const u16 *sizes, u32 section)
{
	const char *why = extent(to, from, features);
	u32 unit = le32_to_cpu((__force __le32)from->discard_sector_alignment);
	u32 block = le32_to_cpu((__force __le32)to->blk_size) / SECTOR_SIZE;

	if (!why)
		why = count(to, from, features, queues);
	if (!why)
		why = bound(to, from, features, *queues, sizes, section);
	if (why)
		return why;
	/* 0 is for a driver: no bound of the device's. */
	if (has(features, VIRTIO_BLK_F_DISCARD)) {
		to->max_discard_sectors = from->max_discard_sectors;
		to->max_discard_seg = from->max_discard_seg;
		if (unit >= block && unit <= UNIT && is_power_of_2(unit))
			to->discard_sector_alignment = from->discard_sector_alignment;
	}
	if (has(features, VIRTIO_BLK_F_WRITE_ZEROES)) {
		to->max_write_zeroes_sectors = from->max_write_zeroes_sectors;
		to->max_write_zeroes_seg = from->max_write_zeroes_seg;
		to->write_zeroes_may_unmap = from->write_zeroes_may_unmap & 1;
	}
	return NULL;
}
