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

/// Returns a program of Debian's, with its own loader and libraries. The programs that check a disk have others.
fn debian(tree: &str, name: &str) -> String {
    format!(
        "{tree}/lib64/ld-linux-x86-64.so.2 --library-path {tree}/usr/lib/x86_64-linux-gnu {tree}/bin/{name}"
    )
}

/// Does it with an image (`ext2.gz`), so much read-ahead in KiB, a seed, and so many operations of each process. With
/// seconds, fio and stress-ng's class of file systems work there before that, each stressor for so long.
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
        verify(seed)?;
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

/// Runs fio, which writes blocks with a sum in each, by the page cache and past it, and reads them all again.
fn verify(seed: u64) -> Result<()> {
    let fio = debian("/fio", "fio");
    sh(&format!(
        "mkdir {PLACE}/fio && {fio} --directory={PLACE}/fio --randseed={seed} --thread --fallocate=none \
         --verify=crc32c --verify_fatal=1 --verify_dump=0 --end_fsync=1 --ioengine=psync --size=4m \
         --name=large --rw=write --bs=64k --name=small --rw=randwrite --bs=1k \
         --name=direct --rw=randrw --bs=4k --direct=1 && rm -rf {PLACE}/fio"
    ))
}

/// Runs stress-ng's class, one stressor after the other, in a folder that is removed afterwards.
fn stress(kind: &str, seconds: u64) -> Result<()> {
    let without =
        if kind == "ext2" { format!(" --exclude {ONLY_WITH_EXTENTS}") } else { String::new() };
    let stress = debian("/stress", "stress-ng");
    sh(&format!(
        "mkdir {PLACE}/stress && {stress} --class filesystem --sequential 1 --timeout {seconds}s --verify \
         --temp-path {PLACE}/stress{without} && rm -rf {PLACE}/stress"
    ))
}

fn sh(line: &str) -> Result<()> {
    let status = Command::new("/bin/sh").args(["-c", line]).status()?;
    if status.success() { Ok(()) } else { Err(Error::other(format!("`{line}`: {status}"))) }
}
