//! From a manifest to an image, and from an image to a bootable CD.

use crate::Error;
use bulkhead_image::late::{BASE, Late};
use bulkhead_image::{Baked, Programs, bake};
use bulkhead_layout::need::MONITORS;
use bulkhead_manifest::Checked;
use std::path::Path;
use std::process::Command;

/// Bakes a checked system with the boot code and the monitors from the folder of
/// artifacts.
///
/// # Errors
/// Missing programs, files that are not what they should be, too little memory.
pub fn build(checked: &Checked, artifacts: &Path) -> Result<Baked, Error> {
    with(checked, artifacts, "boot", |programs| bake(&checked.system, programs))
}

/// Bakes a checked system that starts under a Linux, for the first `cores` cores of its machine.
///
/// # Errors
/// See [`build`]; the system cannot start so.
pub fn build_late(checked: &Checked, artifacts: &Path, cores: usize) -> Result<Late, Error> {
    // A refusal does not wait for programs that may not be built yet.
    let refused = |why| Error::Image(bulkhead_image::Error::from(why));
    checked.system.under_linux(BASE, cores).map_err(refused)?;
    with(checked, artifacts, "late", |programs| Late::bake(&checked.system, cores, programs))
}

/// Bakes such a system as [`build_late`] does, for the address that a Linux gave. Plan and map are those of the machine
/// on which it runs.
///
/// # Errors
/// See [`build_late`]; the address is none that a Linux gives.
pub fn build_at(
    checked: &Checked,
    artifacts: &Path,
    cores: usize,
    base: u64,
) -> Result<Baked, Error> {
    let refused = |why| Error::Image(bulkhead_image::Error::from(why));
    checked.system.under_linux(base, cores).map_err(refused)?;
    with(checked, artifacts, "late", |programs| {
        Late::bake_at(&checked.system, cores, programs, base)
    })
}

/// Reads the code that starts the cores, by its file's name, and the monitors. Bakes with them.
fn with<T>(
    checked: &Checked,
    artifacts: &Path,
    boot: &str,
    bake: impl FnOnce(&Programs<'_>) -> Result<T, bulkhead_image::Error>,
) -> Result<T, Error> {
    let read = |name: &str| {
        let path = artifacts.join(name);
        let hint = |e| {
            Error::Other(format!(
                "{}: {e}; `make build` makes it in target/artifacts of the source tree; --artifacts or BULKHEAD_ARTIFACTS names another folder",
                path.display()
            ))
        };
        std::fs::read(&path).map_err(hint)
    };
    let boot = read(boot)?;
    let kind = checked.system.facts().files;
    let monitors = { MONITORS.iter() }
        .map(|(name, _)| read(&format!("{kind}{name}")))
        .collect::<Result<Vec<_>, _>>()?;
    let monitors = std::array::from_fn(|n| monitors[n].as_slice());
    let programs = Programs { boot: &boot, monitors };
    bake(&programs).map_err(Error::Image)
}

/// Wraps an image into an ISO that GRUB boots on BIOS and on UEFI.
///
/// # Errors
/// `grub-mkrescue` is missing or fails.
pub fn iso(image: &Path, iso: &Path) -> Result<(), Error> {
    let other = |what: &'static str| move |e: std::io::Error| Error::Other(format!("{what}: {e}"));
    let root = iso.with_extension("iso.d");
    let grub = root.join("boot/grub");
    std::fs::create_dir_all(&grub).map_err(other("cannot make a folder for the ISO"))?;
    std::fs::copy(image, root.join("boot/bulkhead")).map_err(other("cannot copy the image"))?;
    let config = "set timeout=0\nmenuentry Bulkhead {\n multiboot2 /boot/bulkhead\n boot\n}\n";
    std::fs::write(grub.join("grub.cfg"), config).map_err(other("cannot write grub.cfg"))?;
    let made = Command::new("grub-mkrescue")
        .args(["-o".as_ref(), iso.as_os_str(), root.as_os_str()])
        .output()
        .map_err(other("grub-mkrescue (`make setup` installs it)"))?;
    std::fs::remove_dir_all(&root).map_err(other("cannot remove the ISO's folder"))?;
    if made.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&made.stderr);
        Err(Error::Other(format!("grub-mkrescue failed: {said}")))
    }
}
