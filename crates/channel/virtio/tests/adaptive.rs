//! How long to look before a sleep: `linux/module/adaptive.h` does as `bulkhead_channel::adaptive` does.

use bulkhead_channel::adaptive::Spin;
use bulkhead_layout::spin::LINUX_SLEEP;
use bulkhead_random::SplitMix64;
use std::fmt::Write as _;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../linux/module");

/// Reads waits, each after an `s` if it was slept through, and writes the time of each next look.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "adaptive.h"
int main(int argc, char **argv)
{
	struct bh_adaptive to = bh_adaptive(strtoull(argv[1], NULL, 10));
	for (int n = 2; n < argc; n++) {
		unsigned long long wait = strtoull(argv[n] + 1, NULL, 10);
		if (argv[n][0] == 's')
			bh_adapt_slept(&to, wait);
		else
			bh_adapt(&to, wait);
		printf("%llu\n", to.time);
	}
	return 0;
}
"#;

#[test]
fn the_module_learns_as_the_crate_does() {
    let mut random = SplitMix64(7);
    let waits: Vec<u64> = (0..2_000).map(|_| random.below(2 * LINUX_SLEEP + 2)).collect();
    let borders = [0, 1, LINUX_SLEEP / 2, LINUX_SLEEP - 1, LINUX_SLEEP, LINUX_SLEEP + 1];
    let twice = borders.into_iter().flat_map(|wait| [wait, wait]);
    let waits: Vec<u64> = twice.chain(waits).collect();
    let (mut spin, mut expected) = (Spin::new(LINUX_SLEEP), String::new());
    // Each second one was slept through.
    for (n, wait) in waits.iter().enumerate() {
        if n % 2 == 0 {
            spin.slept(*wait)
        } else {
            spin.learn(*wait)
        }
        writeln!(expected, "{}", spin.time()).expect("a string takes all");
    }
    let dir = std::env::temp_dir().join(format!("bulkhead-adaptive-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let (source, program) = (dir.join("learn.c"), dir.join("learn"));
    std::fs::write(&source, PROGRAM).expect("a file");
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-Wall", "-Werror", "-I", FOLDER, "-o"]).args([&program, &source]);
    assert!(built.status().expect("a C compiler").success());
    let kind = |n| if n % 2 == 0 { 's' } else { 'l' };
    let args = waits.iter().enumerate().map(|(n, wait)| format!("{}{wait}", kind(n)));
    let said = Command::new(&program).arg(LINUX_SLEEP.to_string()).args(args).output();
    std::fs::remove_dir_all(&dir).expect("its folder");
    assert!(String::from_utf8_lossy(&said.expect("it runs").stdout) == expected);
}
