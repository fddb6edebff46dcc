//! From manifests to doorbells of a virtio device's channel, of which each end has one. The tests compare the
//! doorbells that each end rings with those that wake it, and count them.

use bulkhead_layout::bell::MAX_BELLS;
use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Checked, Diagnostics, Options, load_text};
use std::fmt::Write;
use std::sync::Arc;

/// Loads two Linuxes with such channels: kind and further keys, the sandbox that has the driver or sends, and the
/// other.
fn load(channels: &[(&str, [&str; 2])]) -> Result<Checked, Diagnostics> {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../machines/qemu-q35.toml");
    let mut text = format!("[system]\nname = \"ends\"\nmachine = \"{machine}\"\n");
    for (core, name) in ["one", "two"].into_iter().enumerate() {
        let guest = "{ kind = \"linux\", kernel = \"artifact:linux\", cmdline = \"\" }";
        let _ = writeln!(text, "[[sandbox]]\nname = \"{name}\"\nguest = {guest}\ncores = [{core}]");
        let _ = writeln!(text, "memory = \"256 MiB\"");
    }
    for (n, (kind, [from, to])) in channels.iter().enumerate() {
        let _ = writeln!(text, "[[channel]]\nname = \"c{n}\"\nfrom = \"{from}\"\nto = [\"{to}\"]");
        let _ = writeln!(text, "size = \"256 KiB\"\nkind = {kind}");
    }
    let options = Options { skip_files: true, ..Options::default() };
    load_text(&Arc::new(Source::new("ends.toml".into(), text)), &options)
}

const WOKEN: &str = "\"virtio\"\nnotify = \"doorbell\"";
const THERE: [&str; 2] = ["one", "two"];
const BACK: [&str; 2] = ["two", "one"];

#[test]
fn each_end_of_a_devices_channel_rings_the_other_and_is_woken() {
    let queue = "\"queue\"\nmessage = 64\nnotify = \"adaptive\"";
    let channels =
        [(WOKEN, THERE), (WOKEN, BACK), ("\"virtio\"\nnotify = \"poll\"", THERE), (queue, THERE)];
    let checked = load(&channels).unwrap_or_else(|found| panic!("{found}"));
    let plan = checked.plan(checked.image_estimate).unwrap();
    let ends = [0, 1].map(|sandbox| plan.ends(sandbox));
    let rings = ends
        .each_ref()
        .map(|ends| ends.iter().map(|end| end.rings.map(|bell| bell.number)).collect::<Vec<_>>());
    // In the order of the doorbells that wake the other end.
    assert_eq!(rings, [[Some(0), Some(1), None, Some(2)], [Some(0), Some(1), None, None]]);
    let woken = ends.each_ref().map(|ends| {
        let woken = ends.iter().map(|end| end.woken);
        woken
            .map(|woken| woken.map(|w| (w.bell.nth, w.pin.unwrap().number, w.pin.unwrap().line)))
            .collect::<Vec<_>>()
    });
    let [first, second, last] = [Some((0, 1, 16)), Some((1, 2, 17)), Some((2, 4, 19))];
    assert_eq!(woken, [[first, second, None, None], [first, second, None, last]]);
    // The end that rings has the doorbell of a region that the other end writes.
    for (n, (one, two)) in ends[0].iter().zip(&ends[1]).enumerate() {
        let woken = |end: &bulkhead_plan::End| end.woken.map(|woken| woken.bell);
        assert_eq!((one.rings, two.rings), (woken(two), woken(one)), "channel {n}");
    }
}

#[test]
fn doorbells_of_a_devices_channel_count_both_ways() {
    let load = |there: usize, back: usize| {
        load(&[vec![(WOKEN, THERE); there], vec![(WOKEN, BACK); back]].concat())
    };
    let half = MAX_BELLS / 2;
    let _ = load(half, half).unwrap_or_else(|found| panic!("{found}"));
    let Err(found) = load(half + 1, half) else { panic!("more are accepted than there are") };
    let of_bells = found.shown.iter().filter(|one| one.rule == "bells-too-many");
    let said: Vec<&str> = of_bells.map(|one| &one.message[..]).collect();
    assert_eq!(said, ["one", "two"].map(|name| format!("`{name}` rings for 33 ends of channels")));
}
