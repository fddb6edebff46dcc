//! Leaves the initramfs for a file system on a disk.
//!
//! The initramfs' files in `/bin` and in `/etc/bulkhead` move along, to `/run/bulkhead`. The disk's Debian is the
//! distribution's alone, and a change of our programs does not change it. Busybox goes to `/run/busybox`, which is
//! searched last: the disk's few packages have no `poweroff`, `clear` or `which`.

use crate::devices;
use nix::mount::{MsFlags, mount};
use nix::unistd::{chdir, chroot};
use std::fs;
use std::path::Path;
use std::process::Command;

const NEW: &str = "/newroot";
/// Mounts that move along; those below them come with them.
const MOVED: [&str; 5] = ["/proc", "/sys", "/dev", "/tmp", "/run"];
const NONE: Option<&str> = None;

/// Waits for the disk, mounts it and makes it the root.
///
/// # Errors
/// In words, if it does not come or is no ext4.
pub fn enter(name: &str) -> Result<(), String> {
    let disk = devices::wait(|| device(name))
        .ok_or_else(|| format!("no {name} within {}; there are {}", devices::limit(), disks()))?;
    for folder in [NEW, "/run"] {
        fs::create_dir_all(folder).map_err(|why| format!("{folder}: {why}"))?;
    }
    attach(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty())?;
    attach(Some(&disk), NEW, Some("ext4"), MsFlags::MS_NOATIME)?;
    take_programs().map_err(|why| format!("programs of the initramfs: {why}"))?;
    for from in MOVED {
        attach(Some(from), &format!("{NEW}{from}"), NONE, MsFlags::MS_MOVE)?;
    }
    // As switch_root does; the initramfs's few files stay where nobody sees them.
    let entered = chdir(NEW)
        .and_then(|()| mount(Some("."), "/", NONE, MsFlags::MS_MOVE, NONE))
        .and_then(|()| chroot("."))
        .and_then(|()| chdir("/"));
    entered.map_err(|why| format!("cannot make {disk} the root: {why}"))?;
    // Where programs expect shared memory; Debian's own init makes it, too.
    fs::create_dir_all("/dev/shm").map_err(|why| format!("/dev/shm: {why}"))?;
    attach(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty())?;
    println!("bulkhead-init: root is {disk}");
    Ok(())
}

fn attach(
    source: Option<&str>,
    target: &str,
    kind: Option<&str>,
    flags: MsFlags,
) -> Result<(), String> {
    mount(source, target, kind, flags, NONE)
        .map_err(|why| format!("cannot mount {} on {target}: {why}", source.unwrap_or("nothing")))
}

/// The device's node, once it is there.
fn device(name: &str) -> Option<String> {
    if name.starts_with('/') {
        return fs::exists(name).ok()?.then(|| name.to_owned());
    }
    let out = Command::new("/bin/findfs").arg(name).output().ok()?;
    let node = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    (out.status.success() && !node.is_empty()).then_some(node)
}

/// Names of all disks that can be opened, for a message.
fn disks() -> String {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    // A path of an NVMe disk is listed, but has no node.
    let mut names: Vec<_> =
        names.filter(|name| fs::exists(format!("/dev/{name}")).unwrap_or(false)).collect();
    names.sort();
    if names.is_empty() { "no disks at all".into() } else { names.join(", ") }
}

/// Copies the programs, and busybox with its links apart from them.
fn take_programs() -> std::io::Result<()> {
    let (to, busybox) = (Path::new("/run/bulkhead"), Path::new("/run/busybox"));
    fs::create_dir_all(to)?;
    fs::create_dir_all(busybox)?;
    for entry in fs::read_dir("/bin")?.flatten() {
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, busybox.join(name))?;
        } else if kind.is_file() {
            let folder = if name == "busybox" { busybox } else { to };
            fs::copy(entry.path(), folder.join(name))?;
        }
    }
    match Path::new("/etc/bulkhead").is_dir() {
        true => take_folder(Path::new("/etc/bulkhead"), to),
        false => Ok(()),
    }
}

/// Copies what is in a folder, links as links.
fn take_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (from, to, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            take_folder(&from, &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
