//! The page about boards names each error with which the boot can stop.

use std::collections::BTreeSet;

/// Numbers that begin the comments of variants: `/// 16: no memory map`.
fn numbers(source: &str) -> BTreeSet<u32> {
    let comments = source.lines().filter_map(|line| line.trim().strip_prefix("/// "));
    comments.filter_map(|comment| comment.split_once(':')?.0.parse().ok()).collect()
}

#[test]
fn the_page_has_each_error_of_the_boot() {
    let stop = numbers(include_str!("../../boot/src/stop.rs"));
    let manifest = numbers(include_str!("../../crates/monitor/launch/src/verify.rs"));
    let page = include_str!("../../docs/board.md");
    let all = stop.union(&manifest);
    let missing: Vec<_> = all
        .filter(|number| {
            let (row, below) = (format!("\n| {number} | "), format!(" {number} ("));
            !page.contains(&row) && !page.contains(&below)
        })
        .collect();
    assert!(stop.len() > 12 && manifest.len() == 9, "{stop:?} {manifest:?}");
    assert!(missing.is_empty(), "docs/board.md lacks {missing:?}");
}
