/* SPDX-License-Identifier: GPL-2.0 */
/* A virtio device and its description (device.c). */
#ifndef BULKHEAD_VIRTIO_DEVICE_H
#define BULKHEAD_VIRTIO_DEVICE_H

#include "bulkhead_virtio.h"

/* What a device side says of its device, and what its driver sees of that. */
struct bh_description {
	u64 features;
	u32 device, config_len;
	unsigned int queues;
	u16 sizes[BH_QUEUES];
	u8 said[BH_CONFIG_LEN];
	union {
		u8 config[BH_CONFIG_LEN];
		struct virtio_blk_config block;
	};
};

/* A virtio device: as long as one session lasts, or a disk or card some, or as somebody holds it. */
struct bh_virtio {
	struct virtio_device vdev;
	struct bh_device *bh;
	struct bh_description is;
	/* What the driver has chosen. */
	u64 accepted, sizes;
	u8 status;
	/* It could not be registered. */
	bool failed;
};

extern const struct virtio_config_ops bh_operations;

/* Copies what the device side says of its device, and looks whether that can be; or why not. */
const char *bh_learn(struct bh_device *bh, struct bh_description *is);

#endif
