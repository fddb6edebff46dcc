//! Whatever a sandbox does with its function, the function stays where it is, and
//! what it sends goes to that sandbox's cores. [`Fake`] watches each single write.

use bulkhead_pci_fake::{Fake, all, bridge};
use bulkhead_random::SplitMix64;
use proptest::prelude::*;

/// Carries out what the numbers stand for; how many were denied.
fn run(fake: &Fake, numbers: &[u64]) -> Result<usize, String> {
    let mut denied = 0;
    for number in numbers {
        let access = fake.imagine(&mut SplitMix64(*number));
        denied += usize::from(fake.access(access).is_err());
        fake.wrong().map_err(|why| format!("{access:x?}: {why}"))?;
    }
    Ok(denied)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn an_owner_stays_inside(
        kind in 0usize..7,
        way in 0u8..4,
        numbers in prop::collection::vec(any::<u64>(), 1..300),
    ) {
        let granted = &all()[kind];
        let fake = match way {
            2 => Fake::indexed(granted),
            3 => Fake::crowded(granted),
            _ => Fake::new(granted, way == 1),
        };
        prop_assert_eq!(run(&fake, &numbers).err(), None);
    }

    #[test]
    fn a_bridge_stays_as_it_is(numbers in prop::collection::vec(any::<u64>(), 1..300)) {
        let fake = Fake::shown(bridge());
        let before: Vec<u32> = (0..1024).map(|n| fake.hardware(4 * n)).collect();
        prop_assert_eq!(run(&fake, &numbers).err(), None);
        prop_assert_eq!((0..1024).map(|n| fake.hardware(4 * n)).collect::<Vec<_>>(), before);
    }

    #[test]
    fn reading_changes_nothing(kind in 0usize..7, offset: u16, size in 0u8..9) {
        use bulkhead_pci_fake::Access;
        let fake = Fake::new(&all()[kind], true);
        let before: Vec<u32> = (0..1024).map(|n| fake.hardware(4 * n)).collect();
        let _ = fake.access(Access::Config(offset, size, None));
        let _ = fake.access(Access::Table(offset.into(), size, None));
        prop_assert_eq!((0..1024).map(|n| fake.hardware(4 * n)).collect::<Vec<_>>(), before);
        prop_assert_eq!(fake.wrong(), Ok(()));
    }
}

/// The numbers stand for enough: ports and memory are switched on, messages are sent,
/// and much is denied.
#[test]
fn the_sequences_get_far() {
    for (kind, granted) in all().iter().enumerate() {
        let fake = Fake::new(granted, true);
        let (mut on, mut msi, mut open, mut denied) = (0, 0, 0, 0);
        for number in 0..8_000 {
            denied += usize::from(fake.access(fake.imagine(&mut SplitMix64(number))).is_err());
            fake.wrong().unwrap();
            on += usize::from(fake.hardware(4) & 7 == 7);
            let control = fake.described().msi.map_or(0, |msi| fake.hardware(msi.at.into()));
            msi += usize::from(control & 1 << 16 != 0);
            open += usize::from((0..fake.function().vectors).any(|n| fake.entry(n)[3] & 1 == 0));
        }
        let f = fake.described();
        let enough = |n: usize, wanted: bool| n > 20 || !wanted;
        assert!(
            on > 400 && enough(msi, f.msi.is_some()) && enough(open, f.msix.is_some()),
            "{kind}: on {on}, MSI {msi}, MSI-X {open}"
        );
        assert!((400..7_600).contains(&denied), "{kind}: {denied} denied");
    }
}
