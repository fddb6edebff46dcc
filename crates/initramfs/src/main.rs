//! `bulkhead-initramfs OUT ENTRY...` writes an initramfs image.
//!
//! | entry | puts into the image |
//! |---|---|
//! | `dir:/PATH` | a directory |
//! | `file:/PATH=SOURCE` | the file SOURCE, executable if SOURCE is |
//! | `link:/PATH=TARGET` | a symbolic link |
//! | `dev:/PATH=MAJOR:MINOR` | a character device |
//! | `busybox:/PATH=SOURCE` | the program SOURCE and a link in its directory for each of its applets |
//!
//! OUT is written only if its bytes change, so that what depends on it is not
//! built anew.
#![forbid(unsafe_code)]

use bulkhead_initramfs::{Archive, Entry};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode};
use std::{env, fs};

fn main() -> ExitCode {
    match run(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bulkhead-initramfs: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Vec<String>) -> Result<(), String> {
    let [out, specs @ ..] = &args[..] else {
        return Err("usage: bulkhead-initramfs OUT ENTRY...".into());
    };
    let mut archive = Archive::default();
    for spec in specs {
        add(&mut archive, spec).map_err(|why| format!("{spec}: {why}"))?;
    }
    let bytes = archive.to_bytes();
    if fs::read(out).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(out, bytes).map_err(|e| format!("{out}: {e}"))
}

fn add(archive: &mut Archive, spec: &str) -> Result<(), String> {
    let (kind, rest) = spec.split_once(':').ok_or("no kind before a colon")?;
    if kind == "dir" {
        archive.add(rest, Entry::Directory);
        return Ok(());
    }
    let (path, value) = rest.split_once('=').ok_or("no '=' after the path")?;
    match kind {
        "file" => archive.add(path, file(value)?),
        "link" => archive.add(path, Entry::Link(value.to_owned())),
        "dev" => {
            let (major, minor) = value.split_once(':').ok_or("no MAJOR:MINOR")?;
            let number = |text: &str| text.parse().map_err(|e| format!("{text}: {e}"));
            archive.add(path, Entry::Device(0o600, number(major)?, number(minor)?));
        }
        "busybox" => busybox(archive, path, value)?,
        other => return Err(format!("unknown kind {other}")),
    }
    Ok(())
}

fn file(source: &str) -> Result<Entry, String> {
    let data = fs::read(source).map_err(|e| format!("{source}: {e}"))?;
    let meta = fs::metadata(source).map_err(|e| format!("{source}: {e}"))?;
    let executable = meta.permissions().mode() & 0o111 != 0;
    // The builder's umask must not show in the image.
    Ok(Entry::File(if executable { 0o755 } else { 0o644 }, data))
}

fn busybox(archive: &mut Archive, path: &str, source: &str) -> Result<(), String> {
    let list = Command::new(source).arg("--list").output().map_err(|e| format!("{source}: {e}"))?;
    let (directory, name) = path.rsplit_once('/').ok_or("the path is not absolute")?;
    for applet in String::from_utf8_lossy(&list.stdout).lines() {
        archive.add(&format!("{directory}/{applet}"), Entry::Link(name.to_owned()));
    }
    archive.add(path, file(source)?);
    Ok(())
}
