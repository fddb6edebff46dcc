//! How long to spin before sleeping.
//!
//! A wait that ends soon should be spun through: sleeping and waking cost both sides more. The length of the next
//! wait is unknown; the last ones are a good guess. So the time to spin follows the longer ones among them. It is never
//! more than the cost of sleeping and waking. Then no wait costs more than two sleeps. A wait that had to be slept
//! through costs at most twice as much as with foresight.

use crate::Stop;
use crate::bell::Arm;
use crate::memory::Memory;

/// The receiver's clock and bed.
pub trait Platform {
    /// Returns the time, in ticks of any length, never backwards.
    fn now(&mut self) -> u64;
    /// A pause within a spin.
    fn relax(&mut self);
    /// Sleeps until a ring was delivered since the word was armed; one that came before
    /// counts. May return without.
    fn sleep(&mut self);
}

/// Chooses the time to spin by the cost of recent waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spin {
    cost: u64,
    time: u64,
}

impl Spin {
    /// `cost`: ticks that it takes to sleep and to be woken.
    #[must_use]
    pub const fn new(cost: u64) -> Self {
        Self { cost, time: cost / 2 }
    }

    /// Never spins: for channels that only use the bell.
    pub const NEVER: Self = Self::new(0);

    /// Returns how long the next wait spins, in ticks: at most the cost.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.time
    }

    /// Learns: a wait took `ticks`, the time of a sleep's own cost not counted. Spinning
    /// twice as long as that would have caught it, with something to spare. If that is
    /// more than the cost, it would not have paid.
    pub fn learn(&mut self, ticks: u64) {
        let goal = if ticks <= self.cost { ticks.saturating_mul(2).min(self.cost) } else { 0 };
        // Half of the way up, and a 128th down: one long wait among 32 short ones is caught, too. At least a tick, so
        // that it arrives.
        self.time = if goal >= self.time {
            self.time + (goal - self.time).div_ceil(2)
        } else {
            self.time - (self.time - goal).div_ceil(128)
        };
    }

    /// Learns: a wait took `ticks`, the sleeps of both sides counted, which nobody could tell apart. They are half of a
    /// wait that is worth a spin. A longer wait than the cost would not have been caught, whatever is in it.
    pub fn slept(&mut self, ticks: u64) {
        self.learn(if ticks <= self.cost { ticks / 2 } else { ticks });
    }

    /// Waits until `ready`: spins, then arms, looks once more and sleeps. True once it is ready. False after a sleep
    /// without result: the caller does its other work, and waits again.
    pub fn wait<M: Memory>(
        &mut self,
        arm: &mut Arm<M>,
        platform: &mut impl Platform,
        mut ready: impl FnMut() -> bool,
    ) -> bool {
        if ready() {
            return true;
        }
        // A waiter that never spins has nothing to learn, and need not know the time.
        let learns = self.cost > 0;
        let begun = if learns { platform.now() } else { 0 };
        while learns && platform.now().wrapping_sub(begun) < self.time {
            platform.relax();
            if ready() {
                self.learn(platform.now().wrapping_sub(begun));
                return true;
            }
        }
        arm.arm();
        let slept = !ready();
        if slept {
            platform.sleep();
        }
        arm.disarm();
        if learns {
            let ticks = platform.now().wrapping_sub(begun);
            self.learn(ticks.saturating_sub(if slept { self.cost } else { 0 }));
        }
        !slept || ready()
    }
}

/// A receiver that sleeps.
#[derive(Debug)]
pub struct Sleeper<M: Memory, P> {
    arm: Arm<M>,
    spin: Spin,
    platform: P,
}

impl<M: Memory, P: Platform> Sleeper<M, P> {
    /// Makes a sleeper from its three parts.
    pub const fn new(arm: Arm<M>, spin: Spin, platform: P) -> Self {
        Self { arm, spin, platform }
    }

    /// Waits until `look`, a call of the receiving end, gives anything but [`Stop::Wait`] or [`Stop::Apart`]: a
    /// message, or news of the sender.
    ///
    /// # Errors
    /// The news.
    pub fn wait<T>(&mut self, mut look: impl FnMut() -> Result<T, Stop>) -> Result<T, Stop> {
        let Self { arm, spin, platform } = self;
        let mut found = Err(Stop::Wait);
        let mut ready = || {
            found = look();
            !matches!(found, Err(Stop::Wait | Stop::Apart))
        };
        while !spin.wait(arm, platform, &mut ready) {}
        found
    }

    /// Waits once: after a sleep without result it returns [`Stop::Wait`] or [`Stop::Apart`], so that the caller can
    /// do its other work.
    ///
    /// # Errors
    /// These two, or the news.
    pub fn doze<T>(&mut self, mut look: impl FnMut() -> Result<T, Stop>) -> Result<T, Stop> {
        let Self { arm, spin, platform } = self;
        let mut found = Err(Stop::Wait);
        let ready = || {
            found = look();
            !matches!(found, Err(Stop::Wait | Stop::Apart))
        };
        spin.wait(arm, platform, ready);
        found
    }

    /// Returns how often it has asked to be woken.
    #[must_use]
    pub const fn armings(&self) -> u32 {
        self.arm.count()
    }

    /// Asks to be woken, for a loop of the caller's own: it looks once more, and then sleeps.
    pub fn arm(&mut self) {
        self.arm.arm();
    }

    /// Asks no longer.
    pub fn disarm(&mut self) {
        self.arm.disarm();
    }

    /// Returns the place where it sleeps.
    #[must_use]
    pub const fn bed(&self) -> &P {
        &self.platform
    }

    /// Returns the platform on which it sleeps.
    pub const fn platform(&mut self) -> &mut P {
        &mut self.platform
    }

    /// Returns how long the next wait spins, in the platform's ticks.
    #[must_use]
    pub const fn spins(&self) -> u64 {
        self.spin.time()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Region;
    use proptest::prelude::*;

    /// Messages come at given times; a sleep ends when one comes, and costs.
    struct World {
        now: u64,
        due: u64,
        cost: u64,
        slept: u64,
        spun: u64,
    }

    impl Platform for &core::cell::RefCell<World> {
        fn now(&mut self) -> u64 {
            self.borrow().now
        }
        fn relax(&mut self) {
            let mut world = self.borrow_mut();
            world.now += 1;
            world.spun += 1;
        }
        fn sleep(&mut self) {
            let mut world = self.borrow_mut();
            world.now = world.now.max(world.due) + world.cost;
            world.slept += 1;
        }
    }

    const COST: u64 = 100;

    /// Waits once for a message that comes after `gap` ticks; ticks spun, and sleeps.
    fn once(spin: &mut Spin, arm: &mut Arm<Region>, gap: u64) -> (u64, u64) {
        let world = World { now: 0, due: gap, cost: COST, slept: 0, spun: 0 };
        let world = core::cell::RefCell::new(world);
        let ready = || {
            let world = world.borrow();
            world.now >= world.due
        };
        assert!(spin.wait(arm, &mut &world, ready));
        let world = world.into_inner();
        (world.spun, world.slept)
    }

    fn new() -> (Spin, Arm<Region>) {
        (Spin::new(COST), Arm::open(&Region::new(512)).expect("fits"))
    }

    #[test]
    fn short_waits_are_spun_through_and_long_ones_slept() {
        let (mut spin, mut arm) = new();
        for _ in 0..100 {
            once(&mut spin, &mut arm, 20 * COST);
        }
        // It has learnt not to spin at all, ...
        assert_eq!((spin.time(), once(&mut spin, &mut arm, 20 * COST)), (0, (0, 1)));
        // ... and learns again that it pays.
        for _ in 0..10 {
            once(&mut spin, &mut arm, 30);
        }
        assert_eq!(once(&mut spin, &mut arm, 30), (30, 0));
        // One long wait among them does not change that.
        once(&mut spin, &mut arm, 20 * COST);
        assert_eq!(once(&mut spin, &mut arm, 30).1, 0);
    }

    /// 32 threads that read make such waits: the first of their requests comes when all answers are copied.
    #[test]
    fn one_long_wait_among_32_short_ones_is_caught() {
        const LONG: u64 = 100_000;
        let mut spin = Spin::new(2 * LONG);
        for round in 0..20 {
            (0..32).for_each(|_| spin.learn(LONG / 100));
            assert!(round < 10 || spin.time() > LONG, "{}", spin.time());
            spin.learn(LONG);
        }
    }

    /// A spin that ends in a sleep each time costs more than a sleep alone.
    #[test]
    fn nobody_spins_for_what_comes_after_the_longest_spin() {
        let mut spin = Spin::new(COST);
        (0..1_000).for_each(|_| spin.slept(3 * COST / 2));
        assert_eq!(spin.time(), 0);
        // It begins again for waits that it would have caught.
        (0..20).for_each(|_| spin.slept(COST));
        assert_eq!(spin.time(), COST);
    }

    #[test]
    fn nobody_spins_who_never_should() {
        let (mut never, mut arm) = (Spin::NEVER, new().1);
        for gap in [1, 5, 1000] {
            assert_eq!(once(&mut never, &mut arm, gap), (0, 1));
        }
    }

    proptest! {
        #[test]
        fn no_wait_costs_more_than_two_sleeps(
            gaps in prop::collection::vec(1u64..400, 1..100)
        ) {
            let (mut spin, mut arm) = new();
            for gap in gaps {
                let (spun, slept) = once(&mut spin, &mut arm, gap);
                let best = gap.min(COST);
                prop_assert!(spin.time() <= COST);
                prop_assert!(spun + slept * COST <= 2 * COST);
                // A wait longer than the cost was one to sleep through.
                prop_assert!(gap < COST || spun + slept * COST <= 2 * best);
            }
        }
    }
}
