//! `bulkhead-initramfs OUT ENTRY...` writes an initramfs image.
//!
//! | entry | puts into the image |
//! |---|---|
//! | `dir:/PATH` | a directory |
//! | `file:/PATH=SOURCE` | the file SOURCE, executable if SOURCE is |
//! | `tree:/PATH=SOURCE` | the folder SOURCE with its files and folders |
//! | `link:/PATH=TARGET` | a symbolic link |
//! | `dev:/PATH=MAJOR:MINOR` | a character device |
//! | `busybox:/PATH=SOURCE` | the program SOURCE and a link in its directory for each of its applets |
//!
//! OUT is written only if its bytes change, so that what depends on it is not
//! built anew.
#![forbid(unsafe_code)]

use bulkhead_initramfs::{Archive, Entry};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
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
        "tree" => tree(archive, path.trim_end_matches('/'), Path::new(value))?,
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

fn file(source: impl AsRef<Path>) -> Result<Entry, String> {
    let source = source.as_ref();
    let failed = |e: std::io::Error| format!("{}: {e}", source.display());
    let data = fs::read(source).map_err(failed)?;
    let meta = fs::metadata(source).map_err(failed)?;
    let executable = meta.permissions().mode() & 0o111 != 0;
    // The builder's umask must not show in the image.
    Ok(Entry::File(if executable { 0o755 } else { 0o644 }, data))
}

fn tree(archive: &mut Archive, path: &str, source: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", source.display());
    if !path.is_empty() {
        archive.add(path, Entry::Directory);
    }
    for item in fs::read_dir(source).map_err(failed)? {
        let item = item.map_err(failed)?;
        let at = format!("{path}/{}", item.file_name().to_string_lossy());
        match item.file_type().map_err(failed)? {
            kind if kind.is_dir() => tree(archive, &at, &item.path())?,
            _ => archive.add(&at, file(item.path())?),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_comes_with_all_that_is_below_it() {
        let source = env::temp_dir().join(format!("bulkhead-initramfs-{}", std::process::id()));
        fs::create_dir_all(source.join("lib/deep")).expect("a folder");
        fs::write(source.join("lib/deep/x.ko"), "module").expect("a file");
        let (mut found, mut expected) = (Archive::default(), Archive::default());
        let added = add(&mut found, &format!("tree:/={}", source.display()));
        fs::remove_dir_all(&source).expect("ours");
        added.expect("readable");
        expected.add("/lib/deep/x.ko", Entry::File(0o644, b"module".to_vec()));
        assert_eq!(found.to_bytes(), expected.to_bytes());
        assert!(add(&mut found, "tree:/=/no/such/folder").is_err());
    }
}
