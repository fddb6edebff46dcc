//! A whole disk: an empty file system from an image, both exercises on it, another mount, the comparison, and a check
//! of the file system.

use crate::{file, tree};
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;

/// Where it is mounted.
const PLACE: &str = "/mnt";
/// Processes of the tree.
const PROCESSES: u64 = 3;
/// Stressors of stress-ng's class that a file system without extents refuses, and counts as failures.
const ONLY_WITH_EXTENTS: &str = "fpunch,fsize";

/// stress-ng with its own loader and libraries: those of the programs that check a disk are another Debian's.
const STRESS: &str = "/stress/lib64/ld-linux-x86-64.so.2 --library-path /stress/usr/lib/x86_64-linux-gnu \
                      /stress/bin/stress-ng";

/// Does it with an image (`ext2.gz`), so much read-ahead in KiB, a seed, and so many operations of each process. With
/// seconds, stress-ng's class of file systems works there before that, each stressor for so long.
pub fn exercise(
    device: &str,
    image: &str,
    [ahead, seed, operations, seconds]: [u64; 4],
) -> Result<()> {
    let kind = Path::new(image).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    sh(&format!("zcat {image} >{device}"))?;
    let name = device.rsplit('/').next().unwrap_or(device);
    std::fs::write(format!("/sys/block/{name}/queue/read_ahead_kb"), ahead.to_string())?;
    std::fs::create_dir_all(PLACE)?;
    let (one, folder) = (format!("{PLACE}/file"), format!("{PLACE}/tree"));
    mount(&kind, device)?;
    if seconds > 0 {
        stress(&kind, seconds)?;
    }
    let both = [seed, PROCESSES, operations];
    let alone = [seed, PROCESSES * operations];
    file::exercise(&one, alone)?;
    tree::exercise(&folder, both)?;
    sh(&format!("umount {PLACE}"))?;
    mount(&kind, device)?;
    file::again(&one, alone)?;
    tree::again(&folder, both)?;
    sh(&format!("umount {PLACE}"))?;
    sh(&format!("e2fsck -f -n {device}"))?;
    println!("bhfs: {device}: {kind} with {ahead} KiB of read-ahead is sound");
    Ok(())
}

fn mount(kind: &str, device: &str) -> Result<()> {
    sh(&format!("mount -t {kind} {device} {PLACE}"))
}

/// Runs stress-ng's class, one stressor after the other, in a folder that is removed afterwards.
fn stress(kind: &str, seconds: u64) -> Result<()> {
    let without =
        if kind == "ext2" { format!(" --exclude {ONLY_WITH_EXTENTS}") } else { String::new() };
    sh(&format!(
        "mkdir {PLACE}/stress && {STRESS} --class filesystem --sequential 1 --timeout {seconds}s --verify \
         --temp-path {PLACE}/stress{without} && rm -rf {PLACE}/stress"
    ))
}

fn sh(line: &str) -> Result<()> {
    let status = Command::new("/bin/sh").args(["-c", line]).status()?;
    if status.success() { Ok(()) } else { Err(Error::other(format!("`{line}`: {status}"))) }
}
