/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long to look before a sleep: crates/channel/channel/src/adaptive.rs in C. A test
 * (crates/channel/virtio/tests/adaptive.rs) compares the two, so nothing here is Linux' alone.
 */
#ifndef BULKHEAD_VIRTIO_ADAPTIVE_H
#define BULKHEAD_VIRTIO_ADAPTIVE_H

/* Nanoseconds. */
struct bh_adaptive {
	unsigned long long cost, time;
};

static inline struct bh_adaptive bh_adaptive(unsigned long long cost)
{
	return (struct bh_adaptive){ cost, cost / 2 };
}

/*
 * A wait was so long, without a sleep's own cost. A look twice as long would have caught it. If
 * that is more than the cost, it would not have paid. Half of the way up, and a 128th down: one
 * long wait among 32 short ones is caught, too. At least a nanosecond, so that it arrives.
 */
static inline void bh_adapt(struct bh_adaptive *to, unsigned long long wait)
{
	unsigned long long goal = 0;

	if (wait <= to->cost)
		goal = 2 * wait < to->cost ? 2 * wait : to->cost;
	if (goal >= to->time)
		to->time += (goal - to->time + 1) / 2;
	else
		to->time -= (to->time - goal + 127) / 128;
}

/*
 * A wait with the sleeps of both sides in it: they are half of a wait that is worth a look. A
 * longer wait than the cost would not have been caught, whatever is in it.
 */
static inline void bh_adapt_slept(struct bh_adaptive *to, unsigned long long wait)
{
	bh_adapt(to, wait <= to->cost ? wait / 2 : wait);
}

#endif
