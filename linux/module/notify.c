// SPDX-License-Identifier: GPL-2.0
/*
 * What wakes each side: doorbells, looks from time to time, and the interrupt of a device side
 * that rings. Nothing here knows what a device is for.
 */
#include <linux/io.h>
#include <linux/module.h>

#include "bulkhead_virtio.h"
#include "notify.h"
#include "session.h"
#include "spin.h"

/*
 * How often it looks for what the device has used: while there is something, and else. Where
 * the device side rings, a look that finds nothing is the last one until then.
 */
static unsigned int poll_us = 50;
module_param(poll_us, uint, 0644);
MODULE_PARM_DESC(poll_us, "microseconds between looks at a busy device");
static unsigned int idle_us = 1000;
module_param(idle_us, uint, 0644);
MODULE_PARM_DESC(idle_us, "microseconds between looks at an idle device that does not ring, at most");

static ktime_t micros(unsigned int n)
{
	return ns_to_ktime((u64)n * NSEC_PER_USEC);
}

void bh_ring(struct bh_device *bh)
{
	u64 armed;

	if (!bh->rings)
		return;
	/* Before it looked for the last time it said that it will sleep: one of both sees the other. */
	smp_mb();
	armed = word(bh->theirs, BH_ARMED);
	if (!(armed & 1) || armed == bh->rung)
		return;
	bh->rung = armed;
	iowrite32(BH_DEVICE_PEER << 16, bh->registers + BH_DOORBELL);
}

bool bh_notify(struct virtqueue *vq)
{
	struct bh_queue *q = vq->priv;
	struct bh_device *bh = q->bh;
	ktime_t soon = micros(poll_us);
	unsigned long flags;

	if (READ_ONCE(bh->spoilt) && !q->copied && !q->kept)
		return false;
	if (bh_take(q))
		bh_ring(bh);
	if (READ_ONCE(q->failed))
		tasklet_schedule(&bh->work);
	bh_spin_asked(bh);
	/* An answer is likely: look as often as at a busy one. A device side that rings does with it. */
	if (!bh->irq && !bh_spins(bh) && ktime_after(READ_ONCE(bh->interval), soon)) {
		spin_lock_irqsave(&bh->lock, flags);
		bh->interval = soon;
		if (bh->running)
			hrtimer_start(&bh->timer, soon, HRTIMER_MODE_REL);
		spin_unlock_irqrestore(&bh->lock, flags);
	}
	return true;
}

bool bh_serve(struct bh_device *bh)
{
	unsigned int n, drained, all = 0;
	unsigned long flags;
	bool running;

	spin_lock_irqsave(&bh->lock, flags);
	running = bh->running;
	spin_unlock_irqrestore(&bh->lock, flags);
	for (n = 0; running && n < BH_QUEUES; n++) {
		struct bh_queue *q = &bh->queues[n];

		if (!q->vq)
			continue;
		drained = bh_drain(q);
		/* What waited for room. */
		if (bh_take(q))
			bh_ring(bh);
		if (drained || xchg(&q->failed, false))
			vring_interrupt(0, q->vq);
		all += drained;
	}
	return all;
}

/* The own armed word; not while the thread looks. */
static void set_armed(struct bh_device *bh, bool odd)
{
	unsigned long flags;
	u32 next;

	spin_lock_irqsave(&bh->lock, flags);
	next = (u32)bh->armed + 1;
	if (odd ? !bh_spins(bh) : bh->armed & 1) {
		bh->armed = (bh->armed & ~(u64)U32_MAX) | (odd ? next | 1 : next);
		set_word(bh, BH_ARMED, bh->armed);
	}
	spin_unlock_irqrestore(&bh->lock, flags);
}

/* Asks to be woken, once: by another odd number each time. Whoever does looks once more. */
static void arm(struct bh_device *bh)
{
	set_armed(bh, true);
	/* Before a device side rings it writes what it has done: one of both sees the other. */
	smp_mb();
}

void bh_disarm(struct bh_device *bh)
{
	if (bh->irq)
		set_armed(bh, false);
}

/* Has it looked whether there is a device side, but not more often than it may. */
static void watch_soon(struct bh_device *bh)
{
	unsigned long due = READ_ONCE(bh->watched) + msecs_to_jiffies(WATCH_MS), now = jiffies;
	bool later = READ_ONCE(bh->watches) >= WATCH_BURST && time_after(due, now);

	mod_delayed_work(system_long_wq, &bh->watch, later ? due - now : 0);
}

bool bh_caught_up(struct bh_device *bh)
{
	unsigned int n;

	if (!bh->queues[0].answers)
		return false;
	for (n = 0; n < BH_QUEUES; n++)
		if (bh->queues[n].vq && !list_empty(&bh->queues[n].waiting))
			return false;
	return true;
}

/*
 * Looks at what the device has done. It asks to be woken only when nothing was there, and
 * nobody rang, since the last look: so a device side that rings for nothing costs an
 * interrupt for each poll_us, not as many as it likes. A disk's that answers the last request
 * costs one for it, which the driver has asked for: it is asked at once to ring for the next.
 */
static void look(struct tasklet_struct *work)
{
	struct bh_device *bh = container_of(work, struct bh_device, work);
	ktime_t soon = micros(poll_us), late = micros(idle_us);
	bool woken = xchg(&bh->woken, false), any = bh_serve(bh), sleeps = false;
	unsigned long flags;

	if (any)
		bh_spin_found(bh, !bh_spins(bh), bh_caught_up(bh));
	/* Then it looks for what comes next, too, and leaves that to this when it goes to sleep. */
	if (bh_spins(bh))
		return;
	if (bh->irq && (any ? bh_caught_up(bh) : !woken)) {
		arm(bh);
		any = bh_serve(bh);
		sleeps = !any;
		if (any)
			bh_spin_found(bh, true, bh_caught_up(bh));
	}
	if (bh->irq && (bh->spoilt || word(bh->theirs, BH_HELLO) != READ_ONCE(bh->heard)))
		watch_soon(bh);
	spin_lock_irqsave(&bh->lock, flags);
	bh->interval = any || bh->irq ? soon :
					min_t(ktime_t, 2 * bh->interval, max_t(ktime_t, soon, late));
	if (bh->irq ? !sleeps : bh->running)
		hrtimer_start(&bh->timer, max_t(ktime_t, bh->interval, NSEC_PER_USEC),
			      HRTIMER_MODE_REL);
	spin_unlock_irqrestore(&bh->lock, flags);
}

static enum hrtimer_restart ticked(struct hrtimer *timer)
{
	tasklet_schedule(&container_of(timer, struct bh_device, timer)->work);
	return HRTIMER_NORESTART;
}

/* The device side rang, or its monitor, because it has ended. */
static irqreturn_t rung(int irq, void *data)
{
	struct bh_device *bh = data;

	WRITE_ONCE(bh->woken, true);
	tasklet_schedule(&bh->work);
	return IRQ_HANDLED;
}

void bh_settle(struct bh_device *bh)
{
	tasklet_disable(&bh->work);
	tasklet_enable(&bh->work);
}

void bh_run(struct bh_device *bh, bool on)
{
	unsigned long flags;

	spin_lock_irqsave(&bh->lock, flags);
	bh->running = on;
	bh->interval = micros(poll_us);
	if (on)
		hrtimer_start(&bh->timer, bh->interval, HRTIMER_MODE_REL);
	spin_unlock_irqrestore(&bh->lock, flags);
	if (on)
		return;
	bh_settle(bh);
	bh_spin_settle(bh);
}

int bh_listen(struct bh_device *bh)
{
	int err = pci_alloc_irq_vectors(bh->pci, 1, 1, PCI_IRQ_MSIX);

	if (err < 0)
		return err;
	pci_set_master(bh->pci);
	bh->irq = pci_irq_vector(bh->pci, 0);
	/* An epoch of this life: no number of an earlier one comes again. */
	bh->armed = (u64)bh->epoch << 32;
	set_word(bh, BH_ARMED, bh->armed);
	err = request_irq(bh->irq, rung, 0, KBUILD_MODNAME, bh);
	if (err) {
		bh->irq = 0;
		pci_free_irq_vectors(bh->pci);
		return err;
	}
	/* Now one comes unasked. */
	iowrite32(1, bh->registers + BH_CONTROL);
	return 0;
}

void bh_hush(struct bh_device *bh)
{
	if (!bh->irq)
		return;
	iowrite32(0, bh->registers + BH_CONTROL);
	free_irq(bh->irq, bh);
	pci_free_irq_vectors(bh->pci);
	bh->irq = 0;
	bh_settle(bh);
}

void bh_notify_init(struct bh_device *bh)
{
	spin_lock_init(&bh->lock);
	hrtimer_init(&bh->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	bh->timer.function = ticked;
	tasklet_setup(&bh->work, look);
	bh_spin_init(bh);
}

void bh_notify_end(struct bh_device *bh)
{
	/* A look may start the timer, the timer a look: now neither goes on. */
	tasklet_kill(&bh->work);
	hrtimer_cancel(&bh->timer);
	tasklet_kill(&bh->work);
}
