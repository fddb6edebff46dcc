/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 OR MIT */
/*
 * Numbers of crates/channel/virtio and of a channel's function, from which a test derives this
 * file: BLESS=1 cargo test -p bulkhead-virtio writes it anew.
 */
#ifndef BULKHEAD_VIRTIO_LAYOUT_H
#define BULKHEAD_VIRTIO_LAYOUT_H

#define BH_VENDOR 0x110a
#define BH_FUNCTION 0x4106
#define BH_CLASS 0xff424c
#define BH_CAP_SECTION 0x10
#define BH_CAP_NOTIFY 0x30
#define BH_ID 0x0
#define BH_CONTROL 0x8
#define BH_DOORBELL 0xc
#define BH_DEVICE_PEER 0x1
#define BH_EPOCHS 0x3fffffff
#define BH_HELLO 0x80
#define BH_ARMED 0x180
#define BH_DEVICE 0x200
#define BH_STATUS 0x200
#define BH_OFFERED 0x208
#define BH_ACCEPTED 0x208
#define BH_CONFIG_WORD 0x210
#define BH_SIZES 0x218
#define BH_CONFIG 0x300
#define BH_CONFIG_LEN 0x100
#define BH_QUEUES 0x4
#define BH_NUM 0x100
#define BH_POOL 0x9000
#define BH_IP_END 0x22
#define BH_ADAPTIVE 0x10000
#define BH_LINUX_SLEEP 0x61a80
#define BH_LINUX_POLL 0x30d40

#define BH_DESC(queue) (0x1000 + 0x2000 * (queue))
#define BH_AVAIL(queue) (0x2000 + 0x2000 * (queue))
#define BH_USED(queue) (0x1000 + 0x1000 * (queue))

#define BH_SPIN_BEGINS ".byte 0x0f,0x1f,0x84,0x00,0x53,0x20,0x17,0xb4"
#define BH_SPIN_ENDS ".byte 0x0f,0x1f,0x84,0x00,0x53,0x30,0x17,0xb4"

#endif
