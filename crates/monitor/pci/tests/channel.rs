//! A channel's end. A guest's writes reach its own state, its own interrupt control, its receiver's doorbell and the
//! word for its interrupts, and nothing else.

use bulkhead_pci::late::begin;
use bulkhead_pci::{Denied, Hardware};
use bulkhead_pci_fake::{Access, End, LINE};
use bulkhead_random::SplitMix64;
use proptest::prelude::*;

const MSIX: u16 = 0x98;
const TABLE: u64 = 0x1000;
const ENABLE: u32 = 1 << 31;
const MASK_ALL: u32 = 1 << 30;

/// Writes 32 bits to its pages.
fn write(end: &End, offset: u64, value: u64) -> Result<(), Denied> {
    let done = end.access(Access::Table(offset, 4, Some(value)));
    assert_eq!(end.wrong(), Ok(()));
    done.map(drop)
}

fn control(end: &End, value: u32) -> Result<(), Denied> {
    let done = end.access(Access::Config(MSIX, 4, Some(value)));
    assert_eq!(end.wrong(), Ok(()));
    done.map(drop)
}

/// Its entry: core, vector; unmasked.
fn entry(end: &End, core: u64, vector: u64) -> Result<(), Denied> {
    [0xFEE0_0000 | core << 12, 0, vector, 0]
        .into_iter()
        .zip([TABLE, TABLE + 4, TABLE + 8, TABLE + 12])
        .try_for_each(|(value, at)| write(end, at, value))
}

/// A receiver that wants interrupts.
fn receiver() -> End {
    let end = End::new(1, false, true);
    write(&end, 0x08, 1).unwrap();
    end
}

#[test]
fn the_state_goes_to_the_page_and_to_the_table() {
    for (id, rings, woken) in
        [(1, false, true), (1, false, false), (0, true, false), (0, true, true)]
    {
        let end = End::new(id, rings, woken);
        write(&end, 0x10, 7).unwrap();
        assert_eq!(end.state.get(), 7);
    }
}

/// Under a Linux that runs, the shadow is empty memory until its code has noted each end.
#[test]
fn an_end_begins_where_the_host_put_it() {
    let (end, other) = (End::new(0, true, true), End::new(0, true, true));
    let seen = |end: &End| {
        let config = (0x10..0x28).step_by(4).map(|at| end.access(Access::Config(at, 4, None)));
        let table = (0..4).map(|word| end.access(Access::Table(TABLE + 4 * word, 4, None)));
        config.chain(table).collect::<Vec<_>>()
    };
    let words = end.function.shadow + 4;
    (0..words).for_each(|word| end.set_shadow(word, 0));
    assert_ne!(seen(&end), seen(&other));
    begin(&end, &end.function);
    assert_eq!(seen(&end), seen(&other));
}

#[test]
fn other_widths_are_denied() {
    let end = End::new(1, false, true);
    for (offset, size) in [(0x10, 1), (0x12, 2), (0x10, 8), (0x11, 4), (0x0E, 4), (0x10, 3)] {
        let done = end.access(Access::Table(offset, size, Some(1)));
        assert_eq!((done, end.wrong()), (Err(Denied), Ok(())), "{offset:#x} by {size}");
    }
}

#[test]
fn an_end_rings_for_its_peer_and_for_nobody_else() {
    for (id, peer) in [(0, 0x1_0000), (1, 0)] {
        let end = End::new(id, true, false);
        let wrong =
            [0x1_0000, 0, 1, 0x1_0001, 0x2_0000, 1 << 32].into_iter().filter(|v| *v != peer);
        for (value, rings) in
            [(peer, 1)].into_iter().chain(wrong.map(|v| (v, 1))).chain([(peer, 2)])
        {
            write(&end, 0x0C, value).unwrap();
            assert_eq!(end.rings.get(), rings, "{id} {value:#x}");
        }
        let silent = End::new(id, false, true);
        write(&silent, 0x0C, peer).unwrap();
        assert_eq!(silent.rings.get(), 0);
    }
}

#[test]
fn interrupts_go_where_the_table_says() {
    let end = receiver();
    entry(&end, 5, 0x41).unwrap();
    assert_eq!(end.aim.get(), 0, "without MSI-X");
    control(&end, ENABLE).unwrap();
    assert_eq!(end.aim.get(), 5 << 32 | 0x41);
    control(&end, ENABLE | MASK_ALL).unwrap();
    assert_eq!(end.aim.get(), 0, "masked");
    control(&end, ENABLE).unwrap();
    write(&end, 0x08, 0).unwrap();
    assert_eq!(end.aim.get(), 0, "not wanted");
    write(&end, 0x08, 1).unwrap();
    write(&end, TABLE + 12, 1).unwrap();
    assert_eq!(end.aim.get(), 0, "its entry is masked");
    // Its guest reads what it wrote, and no pending bit.
    let read = |at| end.access(Access::Table(at, 4, None)).unwrap();
    assert_eq!((read(TABLE), read(TABLE + 8), read(TABLE + 0x800)), (0xFEE0_5000, 0x41, 0));
}

#[test]
fn without_msix_they_go_where_the_line_does() {
    let end = receiver();
    end.access(Access::Race(1)).unwrap();
    assert_eq!(end.aim.get(), LINE);
    // Also where the line is off by the command register: see `aim`.
    end.access(Access::Config(4, 2, Some(0x402))).unwrap();
    assert_eq!(end.aim.get(), LINE);
    control(&end, ENABLE).unwrap();
    assert_eq!(end.aim.get(), 0);
}

#[test]
fn what_leaves_the_sandbox_is_denied_and_goes_nowhere() {
    let foreign = [(2, 0x41), (0xFF, 0x41), (5, 0x0F), (5, 0x241), (5, 0x8041)];
    for (core, vector) in foreign {
        let end = receiver();
        entry(&end, 5, 0x41).unwrap();
        control(&end, ENABLE).unwrap();
        assert!(entry(&end, core, vector).is_err(), "{core} {vector:#x}");
        assert_eq!(end.aim.get(), 0);
        // Enabled only then: denied there.
        control(&end, 0).unwrap();
        assert_eq!(control(&end, ENABLE), Err(Denied));
        assert_eq!(end.aim.get(), 0);
    }
    let end = receiver();
    control(&end, ENABLE).unwrap();
    write(&end, TABLE, 0x1000_5000).unwrap();
    write(&end, TABLE + 8, 0x41).unwrap();
    assert_eq!(write(&end, TABLE + 12, 0), Err(Denied), "no message");
}

#[test]
fn a_restart_leaves_nothing() {
    let end = receiver();
    entry(&end, 5, 0x41).unwrap();
    control(&end, ENABLE).unwrap();
    write(&end, 0x10, 7).unwrap();
    assert!(end.access(Access::Restart).is_ok());
    assert_eq!((end.aim.get(), end.wrong()), (0, Ok(())));
    let read = end.access(Access::Table(TABLE + 12, 4, None));
    assert_eq!(read, Ok(1), "masked, as after a reset");
}

proptest! {
    #[test]
    fn interrupts_stay_inside_whatever_is_written(
        (id, rings, woken) in (0u32..2, any::<bool>(), any::<bool>()),
        numbers in prop::collection::vec(any::<u64>(), 1..300),
    ) {
        let end = End::new(id, rings, woken);
        for number in numbers {
            let access = end.imagine(&mut SplitMix64(number));
            let _ = end.access(access);
            prop_assert_eq!(end.wrong(), Ok(()), "{:x?}", access);
        }
    }
}

/// The random sequences get far: interrupts go by the table and by the line, to two cores and more.
#[test]
fn the_sequences_get_far() {
    let end = End::new(1, false, true);
    let (mut line, mut table, mut denied) = (0, 0, 0);
    for number in 0..20_000 {
        denied += u32::from(end.access(end.imagine(&mut SplitMix64(number))).is_err());
        assert_eq!(end.wrong(), Ok(()));
        line += u32::from(end.aim.get() == LINE);
        table += u32::from(![0, LINE].contains(&end.aim.get()));
    }
    assert!(line > 100 && table > 100 && denied > 1000, "{line} {table} {denied}");
}
