//! A Linux' accesses to its function work as on hardware, and forbidden ones are denied. They come in the order of its
//! PCI core.

use bulkhead_pci::Denied;
use bulkhead_pci_fake::{Access, FIRST, Fake, all, bridge};
use bulkhead_plan::BarKind;

const EXPRESS: usize = 0;
const CONVENTIONAL: usize = 1;
const LARGE: usize = 2;
const SLEEPER: usize = 3;
const STUBBORN: usize = 4;
const PECULIAR: usize = 5;
const CONTROLLER: usize = 6;

fn fake(kind: usize, remapped: bool) -> Fake {
    Fake::new(&all()[kind], remapped)
}

fn get(fake: &Fake, at: u16, size: u8) -> u32 {
    fake.access(Access::Config(at, size, None)).unwrap() as u32
}

fn put(fake: &Fake, at: u16, size: u8, value: u32) -> Result<u64, Denied> {
    let done = fake.access(Access::Config(at, size, Some(value)));
    fake.wrong().unwrap();
    done
}

/// Offset in the trapped pages of a word of an MSI-X entry.
fn word(fake: &Fake, vector: u64, word: u64) -> u64 {
    fake.function().table - fake.function().trap + 16 * vector + 4 * word
}

fn table(fake: &Fake, vector: u64, n: u64, size: u8, value: u64) -> Result<u64, Denied> {
    let done = fake.access(Access::Table(word(fake, vector, n), size, Some(value)));
    fake.wrong().unwrap();
    done
}

fn seen(fake: &Fake, vector: u64) -> [u64; 4] {
    [0, 1, 2, 3].map(|n| fake.access(Access::Table(word(fake, vector, n), 4, None)).unwrap())
}

const fn to(core: u32) -> u32 {
    0xFEE0_0000 | core << 12
}

#[test]
fn bars_are_sized_and_stay() {
    for kind in 0..all().len() {
        let fake = fake(kind, true);
        for bar in fake.described().bars.clone() {
            let at = 0x10 + 4 * u16::from(bar.number);
            let wide = matches!(bar.kind, BarKind::Memory { wide: true, .. });
            let halves: &[u16] = if wide { &[0, 4] } else { &[0] };
            let is = |from: u64, low: u32| {
                halves.iter().all(|half| {
                    let low = if *half == 0 { low } else { 0 };
                    get(&fake, at + half, 4) == (from >> (8 * half)) as u32 | low
                })
            };
            let low = bar.kind.low_bits();
            assert!(is(bar.span.start, low));
            for half in halves {
                put(&fake, at + half, 4, u32::MAX).unwrap();
            }
            assert!(is(!(bar.span.len - 1), low), "the size of {bar:?}");
            for half in halves {
                put(&fake, at + half, 4, 0).unwrap();
            }
            assert!(is(0, low));
            for half in halves {
                put(&fake, at + half, 4, (bar.span.start >> (8 * half)) as u32).unwrap();
            }
            assert!(is(bar.span.start, low));
            // By the last half, as all address bits of the first can be fixed.
            let half = halves[halves.len() - 1];
            let moved = (bar.span.start >> (8 * half)) as u32 ^ 0x8000_0000;
            assert_eq!(put(&fake, at + half, 4, moved), Err(Denied));
            assert_eq!(put(&fake, at + half + 3, 1, 0x55), Err(Denied));
            assert!(is(bar.span.start, low));
        }
        // There is no ROM, and there are no other BARs.
        put(&fake, 0x30, 4, 0xFFFF_F801).unwrap();
        assert_eq!(get(&fake, 0x30, 4), 0);
        let used = |at: u16| {
            fake.described().bars.iter().any(|bar| {
                let wide = matches!(bar.kind, BarKind::Memory { wide: true, .. });
                let first = 0x10 + 4 * u16::from(bar.number);
                at == first || wide && at == first + 4
            })
        };
        for at in (0x10..0x28).step_by(4).filter(|at| !used(*at)) {
            put(&fake, at, 4, u32::MAX).unwrap();
            assert_eq!(get(&fake, at, 4), 0);
        }
    }
}

#[test]
fn the_command_register_by_words_and_bytes() {
    let fake = fake(EXPRESS, true);
    let status = fake.hardware(4) & 0xFFFF_0000;
    put(&fake, 4, 2, 0x0547).unwrap();
    assert_eq!(fake.hardware(4), status | 0x0407, "without the bits for errors");
    assert_eq!(fake.hardware(0x1C), 0xFEB0_4000, "the BARs come first");
    put(&fake, 5, 1, 0).unwrap();
    assert_eq!(get(&fake, 4, 2), 0x0407, "the line is another's");
    put(&fake, 4, 1, 0x00).unwrap();
    assert_eq!(get(&fake, 4, 2), 0x0403, "it decodes its BARs for ever");
    put(&fake, 6, 2, 0xFFFF).unwrap();
    put(&fake, 4, 4, 0xFFFF_0002).unwrap();
    assert_eq!(fake.hardware(4), status | 0x0403);

    let owner = self::fake(CONVENTIONAL, true);
    put(&owner, 4, 2, 0x0407).unwrap();
    put(&owner, 5, 1, 0).unwrap();
    assert_eq!(get(&owner, 4, 2), 0x0007, "this one's line is its own");
}

#[test]
fn accesses_across_registers_are_denied() {
    let fake = fake(EXPRESS, true);
    for (at, size) in [(2, 4), (3, 2), (1, 4), (0, 8), (0, 3), (0, 0)] {
        assert_eq!(fake.access(Access::Config(at, size, None)), Err(Denied), "{size} at {at}");
    }
    assert_eq!(get(&fake, 2, 2), 0x5678);
    assert_eq!(get(&fake, 1, 1), 0x12);
    for (at, size) in [(2, 4), (4, 8), (1, 2)] {
        assert_eq!(fake.access(Access::Table(at, size, None)), Err(Denied), "{size} at {at}");
    }
    assert_eq!(fake.access(Access::Table(word(&fake, 0, 0), 2, None)), Err(Denied));
    fake.wrong().unwrap();
}

/// As `msix_capability_init` and `msix_setup_interrupts` do.
#[test]
fn msix_in_linux_order() {
    for remapped in [false, true] {
        let fake = fake(EXPRESS, remapped);
        put(&fake, 4, 2, 0x0006).unwrap();
        put(&fake, 0x72, 2, 0xC000).unwrap();
        for (vector, (core, data)) in (0u64..).zip([(1, 0x31), (5, 0x31), (200, 0x42)]) {
            table(&fake, vector, 3, 4, 1).unwrap();
            table(&fake, vector, 0, 4, to(core).into()).unwrap();
            table(&fake, vector, 1, 4, 0).unwrap();
            table(&fake, vector, 2, 4, data).unwrap();
            assert_eq!(fake.entry(vector as u32)[3], 1, "masked");
            table(&fake, vector, 3, 4, 0).unwrap();
            let wanted = match remapped {
                false => [to(core), 0, data as u32, 0],
                true => [to(0), 0, vector as u32, 0],
            };
            assert_eq!(fake.entry(vector as u32), wanted);
            assert_eq!(seen(&fake, vector), [to(core).into(), 0, data, 0]);
            let entry = 1 | core << 8 | (data as u32) << 16;
            assert_eq!(fake.slot(vector as usize), if remapped { entry } else { 0 });
        }
        put(&fake, 0x72, 2, 0x8000).unwrap();
        assert_eq!(fake.hardware(0x70) >> 30, 2);
        // Another core, and back: the first entry serves again.
        for core in [5, 1] {
            table(&fake, 0, 0, 8, to(core).into()).unwrap();
        }
        let first = if remapped { [to(0), 0, 0, 0] } else { [to(1), 0, 0x31, 0] };
        assert_eq!(fake.entry(0), first);
        // By 8 bytes: data and mask together.
        table(&fake, 0, 2, 8, 1 << 32 | 0x51).unwrap();
        assert_eq!(fake.entry(0)[3], 1);
        assert_eq!(seen(&fake, 0)[2..], [0x51, 1]);
    }
}

#[test]
fn messages_beyond_the_right_are_denied() {
    for remapped in [false, true] {
        let fake = fake(EXPRESS, remapped);
        put(&fake, 4, 2, 6).unwrap();
        let own: u64 = to(1).into();
        let bad = [
            (u64::from(to(2)), 0x31, "a foreign core"),
            (u64::from(to(0xFF)), 0x31, "all cores"),
            (own | 1 << 2, 0x31, "a logical destination"),
            (own | 1 << 3, 0x31, "redirected"),
            (own | 1 << 32, 0x31, "an address above 4 GiB"),
            (own ^ 1 << 20, 0x31, "another address"),
            (own, 0x0F, "a vector below 16"),
            (own, 0x200, "an SMI"),
            (own, 0x400, "an NMI"),
            (own, 0x500, "an INIT"),
            (own, 0x731, "an ExtINT"),
            (own, 0x8031, "a level"),
            (own, 0x1_0031, "reserved bits"),
        ];
        for (address, data, what) in bad {
            table(&fake, 0, 0, 8, own).unwrap();
            table(&fake, 0, 2, 8, 0x31).unwrap();
            assert_eq!(fake.entry(0)[3], 0);
            // While it is open: it is masked at once.
            let done = [table(&fake, 0, 0, 8, address), table(&fake, 0, 2, 8, data)];
            assert!(done.contains(&Err(Denied)), "{what}");
            assert_eq!(fake.entry(0)[3], 1, "{what}");
            assert_eq!(seen(&fake, 0)[2], data, "{what}: the guest reads what it wrote");
            // Opened late.
            table(&fake, 0, 3, 4, 1).unwrap();
            assert_eq!(table(&fake, 0, 3, 4, 0), Err(Denied), "{what}");
            assert_eq!(fake.entry(0)[3], 1, "{what}");
            table(&fake, 0, 3, 4, 1).unwrap();
        }
    }
}

#[test]
fn msi_wide_and_narrow() {
    for (kind, wide) in [(EXPRESS, true), (LARGE, false), (CONVENTIONAL, false)] {
        for remapped in [false, true] {
            let fake = fake(kind, remapped);
            let at = u16::from(fake.described().msi.unwrap().at);
            let data = if wide { at + 12 } else { at + 8 };
            assert_eq!(get(&fake, at + 2, 2) >> 1 & 7, 0, "one message is what there is");
            // Not yet: core 0 is a foreign one.
            assert_eq!(put(&fake, at + 2, 2, 1), Err(Denied));
            assert_eq!(get(&fake, at + 2, 2) & 1, 0);
            put(&fake, at + 4, 4, to(5)).unwrap();
            if wide {
                put(&fake, at + 8, 4, 0).unwrap();
            }
            put(&fake, data, 2, 0x61).unwrap();
            assert_eq!(fake.hardware(at) >> 16 & 1, 0);
            // With a request for several.
            put(&fake, at + 2, 2, 0x0031).unwrap();
            let sent = |core, vector| match remapped {
                false => (to(core), vector),
                true => (
                    to(0),
                    (0..512).position(|n| fake.slot(n) == 1 | core << 8 | vector << 16).unwrap()
                        as u32,
                ),
            };
            let now = || (fake.hardware(at + 4), fake.hardware(data));
            assert_eq!(fake.hardware(at) >> 16 & 0x71, 1);
            assert_eq!(now(), sent(5, 0x61));
            assert_eq!((get(&fake, at + 4, 4), get(&fake, data, 2)), (to(5), 0x61));
            // On the way to another core Linux shows one half before the other.
            put(&fake, at + 4, 4, to(1)).unwrap();
            assert_eq!(now(), sent(1, 0x61));
            put(&fake, data, 2, 0x62).unwrap();
            assert_eq!(now(), sent(1, 0x62));
            // A denied message leaves the last one that was right.
            assert_eq!(put(&fake, data, 2, 0x403), Err(Denied));
            assert_eq!(now(), sent(1, 0x62));
            put(&fake, at + 2, 2, 0).unwrap();
            assert_eq!(fake.hardware(at) >> 16 & 1, 0);
        }
    }
}

#[test]
fn messages_name_entries_of_a_table_that_nobody_changes() {
    let fake = Fake::indexed(&all()[EXPRESS]);
    put(&fake, 4, 2, 7).unwrap();
    let named = |index: u32| 0xFEE0_0010 | (index & 0x7FFF) << 5 | (index >> 15) << 2;
    let at = u16::from(fake.described().msi.unwrap().at);
    let message = |core, vector| {
        put(&fake, at + 4, 4, to(core))?;
        put(&fake, at + 12, 2, vector)?;
        put(&fake, at + 2, 2, 1)?;
        Ok((fake.hardware(at + 4), fake.hardware(at + 12)))
    };
    // The third core's entries have numbers of 16 bits.
    for (nth, core) in [1, 5, 200].into_iter().enumerate() {
        let index = FIRST + 256 * nth as u32 + 0x61;
        put(&fake, at + 2, 2, 0).unwrap();
        assert_eq!(message(core, 0x61), Ok((named(index), 0)));
    }
    for (core, vector) in [(2, 0x61), (255, 0x61), (1, 15)] {
        put(&fake, at + 2, 2, 0).unwrap();
        assert_eq!(message(core, vector), Err(Denied));
    }
    table(&fake, 0, 0, 8, to(5).into()).unwrap();
    table(&fake, 0, 2, 8, 0x31).unwrap();
    assert_eq!(fake.entry(0), [named(FIRST + 0x131), 0, 0, 0]);
    assert_eq!(seen(&fake, 0), [to(5).into(), 0, 0x31, 0]);
    // One that names an entry itself.
    table(&fake, 1, 0, 8, named(FIRST + 0x131).into()).unwrap();
    assert_eq!(table(&fake, 1, 2, 8, 0x31), Err(Denied));
}

#[test]
fn a_reset_and_then_the_saved_state() {
    type Reset = fn(&Fake);
    let flr_by_byte: Reset = |fake| _ = put(fake, 0x89, 1, 0x80).unwrap();
    let flr: Reset = |fake| _ = put(fake, 0x88, 2, get(fake, 0x88, 2) | 0x8000).unwrap();
    let power: Reset = |fake| {
        put(fake, 0x44, 2, 3).unwrap();
        assert_eq!(get(fake, 0x44, 2) & 3, 3);
        put(fake, 0x44, 2, 0).unwrap();
    };
    let advanced: Reset = |fake| _ = put(fake, 0x94, 1, 1).unwrap();
    let ways = [(EXPRESS, flr), (EXPRESS, flr_by_byte), (EXPRESS, power), (LARGE, advanced)];
    for (number, (kind, reset)) in ways.into_iter().enumerate() {
        let fake = fake(kind, true);
        let bars: Vec<u32> = (0..6).map(|n| get(&fake, 0x10 + 4 * n, 4)).collect();
        put(&fake, 4, 2, 7).unwrap();
        table(&fake, 0, 0, 8, to(1).into()).unwrap();
        table(&fake, 0, 2, 8, 0x31).unwrap();
        let payload = fake.hardware(0x88) & 0xE0;
        reset(&fake);
        assert_eq!(fake.hardware(4) & 0xFFFF, 0, "way {number}");
        assert_eq!(fake.hardware(0x10) & !0xF, 0, "the BARs have moved");
        assert_eq!(fake.entry(0)[3], 1);
        assert_eq!(fake.hardware(0x88) & 0xE0, payload);
        for (n, bar) in (0u16..).zip(&bars) {
            put(&fake, 0x10 + 4 * n, 4, *bar).unwrap();
        }
        put(&fake, 4, 2, 6).unwrap();
        for (n, bar) in (0u16..).zip(&bars) {
            assert_eq!(fake.hardware(0x10 + 4 * n), *bar, "way {number}");
        }
        table(&fake, 0, 3, 4, 0).unwrap();
        assert_eq!(fake.entry(0), [to(0), 0, 0, 0]);
    }
}

/// In the midst of a reset the BARs are not written: then nothing is decoded either.
#[test]
fn nothing_is_enabled_while_a_reset_lasts() {
    let fake = fake(EXPRESS, true);
    fake.access(Access::Slow(3)).unwrap();
    put(&fake, 0x88, 2, 0x8000).unwrap();
    assert_eq!(put(&fake, 4, 2, 6), Err(Denied));
    assert_eq!(fake.hardware(4) & 3, 0);
    put(&fake, 4, 2, 6).unwrap();
    assert_eq!(fake.hardware(0x1C), 0xFEB0_4000);
}

#[test]
fn a_restart_leaves_nothing_open() {
    for kind in [EXPRESS, LARGE, SLEEPER, STUBBORN, PECULIAR, CONTROLLER] {
        let fake = fake(kind, true);
        put(&fake, 4, 2, 7).unwrap();
        let last = u64::from(fake.function().vectors) - 1;
        for vector in [0, last] {
            table(&fake, vector, 0, 8, to(1).into()).unwrap();
            table(&fake, vector, 2, 8, 0x31).unwrap();
            assert_eq!(fake.entry(vector as u32)[3], 0);
        }
        let control = u16::from(fake.described().msix.unwrap().at) + 2;
        put(&fake, control, 2, 0x8000).unwrap();
        put(&fake, 4, 2, 0).unwrap();
        fake.access(Access::Restart).unwrap();
        fake.wrong().unwrap();
        let on = fake.hardware(control & !3) >> 31;
        assert_eq!(
            (on, fake.hardware(4) & 6),
            (0, 2),
            "{kind}: it reaches nothing, and can be reached"
        );
        for vector in [0, last] {
            assert_eq!(fake.entry(vector as u32)[3], 1, "{kind}");
            assert_eq!(seen(&fake, vector), [0, 0, 0, 1]);
        }
    }
}

#[test]
fn a_restart_waits_until_a_function_is_at_rest() {
    let fake = fake(PECULIAR, true);
    put(&fake, 4, 2, 6).unwrap();
    fake.access(Access::Restart).unwrap();
    fake.wrong().unwrap();
    // One that does not come to rest is not given to the next life, nor can it do harm.
    put(&fake, 4, 2, 6).unwrap();
    fake.hang();
    assert_eq!(fake.access(Access::Restart), Err(Denied));
    assert!(fake.is_busy());
    assert_eq!(fake.hardware(4) & 6, 2);
    fake.wrong().unwrap();
}

#[test]
fn a_restart_keeps_what_is_the_hosts() {
    let fake = fake(EXPRESS, true);
    let size = fake.hardware(0x88) & 0x00EF;
    assert_ne!(size & 0xE0, 0);
    fake.access(Access::Restart).unwrap();
    assert_eq!(fake.hardware(0x88) & 0x00EF, size);
    // A function that slept answers again.
    let sleeper = self::fake(CONVENTIONAL, true);
    put(&sleeper, 0x74, 2, 3).unwrap();
    sleeper.access(Access::Restart).unwrap();
    assert_eq!(get(&sleeper, 0x74, 2) & 3, 0);
    assert_eq!(sleeper.hardware(4) & 0x400, 0x400, "its line is released");
}

#[test]
fn the_remapping_table_fills_and_never_changes() {
    let fake = fake(LARGE, true);
    put(&fake, 4, 2, 6).unwrap();
    table(&fake, 0, 3, 4, 0).unwrap_err();
    // Another core's message comes first.
    fake.access(Access::Race(0x77)).unwrap();
    table(&fake, 0, 2, 8, 0x20).unwrap_err();
    table(&fake, 0, 0, 8, to(5).into()).unwrap();
    assert_eq!((fake.slot(0), fake.slot(1)), (1 | 1 << 8 | 0x77 << 16, 1 | 5 << 8 | 0x20 << 16));
    assert_eq!(fake.entry(0)[2], 1);
    let mut pairs = [1, 5, 200].into_iter().flat_map(|core| (16..256).map(move |v| (core, v)));
    let mut all = (0..512).map(|slot| fake.slot(slot)).collect::<Vec<_>>();
    let full = pairs.by_ref().find(|(core, vector)| {
        table(&fake, 0, 3, 4, 1).unwrap();
        table(&fake, 0, 0, 8, to(*core).into()).unwrap();
        let denied = table(&fake, 0, 2, 8, *vector).is_err();
        for (slot, before) in all.iter_mut().enumerate() {
            assert!(*before == 0 || *before == fake.slot(slot), "slot {slot}");
            *before = fake.slot(slot);
        }
        denied
    });
    assert!(full.is_some() && all.iter().all(|entry| *entry != 0));
    // Those that are there serve on.
    table(&fake, 0, 3, 4, 1).unwrap();
    table(&fake, 0, 0, 8, to(5).into()).unwrap();
    table(&fake, 0, 2, 8, 0x20).unwrap();
    assert_eq!(fake.entry(0), [to(0), 0, 1, 0]);
}

/// A Linux that moves its interrupts for months: each message that it has open stays, and no new one is denied.
#[test]
fn entries_that_no_message_names_are_emptied_once_all_are_filled() {
    let fake = Fake::crowded(&all()[EXPRESS]);
    put(&fake, 4, 2, 6).unwrap();
    let sent = |vector: u64| {
        let entry = fake.slot(fake.entry(vector as u32)[2] as usize);
        (entry & 1 != 0).then_some((entry >> 8 & 0xFF, entry >> 16))
    };
    let at = u16::from(fake.described().msi.unwrap().at);
    put(&fake, at + 4, 4, to(200)).unwrap();
    put(&fake, at + 12, 2, 0x99).unwrap();
    put(&fake, at + 2, 2, 1).unwrap();
    // Masked ones name nothing.
    let open = |vector, core, data| {
        table(&fake, vector, 3, 4, 1).unwrap();
        table(&fake, vector, 0, 8, to(core).into()).unwrap();
        table(&fake, vector, 2, 8, data).unwrap();
    };
    open(0, 5, 0x21);
    open(1, 200, 0x22);
    let mut emptied = 0;
    let all = [1, 5, 200].into_iter().flat_map(|core| (16..256).map(move |vector| (core, vector)));
    for (core, vector) in all.clone().chain(all) {
        let before = (0..512).filter(|slot| fake.slot(*slot) != 0).count();
        open(2, core, vector.into());
        assert_eq!(sent(2), Some((core, vector)));
        assert_eq!([sent(0), sent(1)], [Some((5, 0x21)), Some((200, 0x22))]);
        assert_eq!(fake.slot(fake.hardware(at + 12) as usize & 0x1FF), 1 | 200 << 8 | 0x99 << 16);
        emptied += usize::from((0..512).filter(|slot| fake.slot(*slot) != 0).count() < before);
    }
    assert!(emptied > 1, "{emptied}");
}

#[test]
fn a_bridge_is_only_shown() {
    let fake = Fake::shown(bridge());
    assert_eq!((get(&fake, 0x10, 4), get(&fake, 0x38, 4), get(&fake, 0x3D, 1)), (0, 0, 0));
    let buses = get(&fake, 0x18, 4);
    // As `pci_scan_bridge` does, in case the firmware has not given numbers.
    put(&fake, 0x18, 4, buses).unwrap();
    assert_eq!(put(&fake, 0x18, 4, buses ^ 0x100), Err(Denied));
    assert_eq!(put(&fake, 0x1A, 1, buses >> 16 ^ 1), Err(Denied));
    assert_eq!(put(&fake, 0x3E, 2, 0x40), Err(Denied), "a reset of the bus behind it");
    put(&fake, 0x3E, 2, 0).unwrap();
    for at in (0..0x1000).step_by(4).filter(|at| ![0x18, 0x3C].contains(at)) {
        put(&fake, at, 4, u32::MAX).unwrap();
    }
    // Its source validation is shown and stays on, by whatever width somebody writes there.
    for (at, size) in [(0x14C, 4), (0x14E, 2), (0x14E, 1)] {
        let _ = put(&fake, at, size, 0);
        assert_eq!(get(&fake, 0x14C, 4), 0x001F_005F);
    }
}
