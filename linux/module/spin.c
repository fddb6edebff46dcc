// SPDX-License-Identifier: GPL-2.0
/*
 * Spinning (IDDR): a thread of this Linux looks for what a disk's device side has done, so that no
 * interrupt is needed. With `poll` it looks until a fixed time has passed since the last work. With
 * `adaptive` it looks for as long as that has lately paid.
 *
 * It is an ordinary thread of the lowest priority. So its time is its own in every account, and
 * whoever has work on its processor goes first. It never looks for longer than BH_LINUX_SLEEP
 * without asking the scheduler. While it looks nobody else asks to be woken; when it goes to sleep
 * it leaves that to look() in notify.c. So a wake of it that is lost costs time, and no answer.
 *
 * Markers (crates/abi/layout/src/marker.rs) enclose the look. They are long NOPs: they tell the
 * measuring emulator which instructions found nothing.
 */
#include <linux/ktime.h>
#include <linux/kthread.h>
#include <linux/sched.h>

#include "adaptive.h"
#include "bulkhead_virtio.h"
#include "notify.h"
#include "spin.h"

#ifdef CONFIG_X86_64
#define MARK(bytes) asm volatile(bytes : : : "memory")
#else
#define MARK(bytes)
#endif

/* Time of the next look. */
static u64 patience(const struct bh_spin *spin)
{
	return spin->fixed ? BH_LINUX_POLL : READ_ONCE(spin->adaptive.time);
}

static void wake(struct bh_device *bh)
{
	struct task_struct *thread = READ_ONCE(bh->spin.thread);

	if (!thread || bh_spins(bh) || READ_ONCE(bh->away) || !patience(&bh->spin))
		return;
	WRITE_ONCE(bh->spin.awake, true);
	bh_disarm(bh);
	wake_up_process(thread);
}

void bh_spin_asked(struct bh_device *bh)
{
	struct bh_spin *spin = &bh->spin;

	/* The wait for an answer begins now. What passed before was a wait for the driver. */
	if (xchg(&spin->idle, false))
		WRITE_ONCE(spin->begun, ktime_get_ns());
	wake(bh);
}

void bh_spin_found(struct bh_device *bh, bool slept, bool caught_up)
{
	struct bh_spin *spin = &bh->spin;
	u64 now, wait;
	unsigned long flags;

	if (!READ_ONCE(spin->thread))
		return;
	now = ktime_get_ns();
	spin_lock_irqsave(&spin->lock, flags);
	wait = now - spin->begun;
	if (slept)
		bh_adapt_slept(&spin->adaptive, wait);
	else
		bh_adapt(&spin->adaptive, wait);
	WRITE_ONCE(spin->begun, now);
	WRITE_ONCE(spin->idle, caught_up);
	spin_unlock_irqrestore(&spin->lock, flags);
	/* More answers are awaited. */
	if (!caught_up)
		wake(bh);
}

/* Until there is something, or too late, or somebody else has work for this processor. */
static bool await(struct bh_device *bh)
{
	struct bh_spin *spin = &bh->spin;
	bool found;

	MARK(BH_SPIN_BEGINS);
	while (!(found = bh_pending(bh)) && !need_resched() && !kthread_should_stop() &&
	       READ_ONCE(bh->running) && ktime_get_ns() - READ_ONCE(spin->begun) < patience(spin))
		cpu_relax();
	MARK(BH_SPIN_ENDS);
	return found;
}

/* Looks, and serves. Whether it is to look again. */
static bool turn(struct bh_device *bh)
{
	struct bh_spin *spin = &bh->spin;
	bool goes_on = false;

	mutex_lock(&spin->looks);
	/* What the queues have is freed when they are not in use. */
	if (READ_ONCE(bh->running) && !READ_ONCE(bh->dead)) {
		goes_on = true;
		if (await(bh)) {
			/* A driver's work after its interrupt is done at the end of this. */
			local_bh_disable();
			if (bh_serve(bh))
				bh_spin_found(bh, false, bh_caught_up(bh));
			else
				/* Nothing that can be used: a session that is over. */
				goes_on = false;
			local_bh_enable();
		} else if (!need_resched()) {
			goes_on = false;
		}
	}
	mutex_unlock(&spin->looks);
	return goes_on;
}

static int spins(void *data)
{
	struct bh_device *bh = data;
	struct bh_spin *spin = &bh->spin;

	set_user_nice(current, MAX_NICE);
	while (!kthread_should_stop()) {
		if (bh_spins(bh)) {
			if (turn(bh)) {
				cond_resched();
				continue;
			}
			WRITE_ONCE(spin->awake, false);
			/* It asks to be woken, or sets the timer, and looks once more. */
			tasklet_schedule(&bh->work);
		}
		set_current_state(TASK_IDLE);
		if (!bh_spins(bh) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	WRITE_ONCE(spin->awake, false);
	tasklet_schedule(&bh->work);
	return 0;
}

void bh_spin_init(struct bh_device *bh)
{
	spin_lock_init(&bh->spin.lock);
	mutex_init(&bh->spin.looks);
}

void bh_spin_start(struct bh_device *bh)
{
	struct bh_spin *spin = &bh->spin;
	struct task_struct *thread;

	/* Where each side rings the other, and nothing more is said, nobody looks. */
	if (bh->notify && !(bh->notify & BH_ADAPTIVE))
		return;
	spin->fixed = !bh->notify;
	spin->adaptive = bh_adaptive(BH_LINUX_SLEEP);
	spin->idle = true;
	thread = kthread_run(spins, bh, "bulkhead-spin");
	if (IS_ERR(thread))
		dev_warn(&bh->pci->dev, "no thread that looks: %ld\n", PTR_ERR(thread));
	else
		WRITE_ONCE(spin->thread, thread);
}

void bh_spin_stop(struct bh_device *bh)
{
	struct task_struct *thread = xchg(&bh->spin.thread, NULL);

	if (!thread)
		return;
	/* No look wakes it any more; its driver is gone. */
	bh_settle(bh);
	kthread_stop(thread);
}

void bh_spin_settle(struct bh_device *bh)
{
	mutex_lock(&bh->spin.looks);
	mutex_unlock(&bh->spin.looks);
}
