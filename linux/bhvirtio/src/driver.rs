//! The driver's side, for guests without udev: loads the module and the stock driver, waits for the device, and
//! uses it.

use bulkhead_linux::run::done;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest time for a device to appear: the other side's Linux has to boot.
const LIMIT: Duration = Duration::from_secs(120);

/// Gives the network card its address and runs a program, again until it ends well. The device side may begin anew
/// meanwhile, and the card is another one then.
pub fn card(address: &str, program: &[&str]) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match try_card(address, program) {
            Err(why) if begun.elapsed() < LIMIT => println!("bhvirtio: {why}; once more"),
            done => return done,
        }
        sleep(Duration::from_millis(200));
    }
}

fn try_card(address: &str, program: &[&str]) -> io::Result<()> {
    let card = wait("virtio_net", |device| entry(&device.join("net")))?;
    let card = card.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // A card that was looked at in its last moment has no address yet.
    let _ = Command::new("ip").args(["addr", "flush", "dev", &card]).status();
    done(Command::new("ip").args(["addr", "add", address, "dev", &card]))?;
    done(Command::new("ip").args(["link", "set", &card, "up"]))?;
    println!("bhvirtio: {card} is {address}");
    let [program, arguments @ ..] = program else { return Ok(()) };
    done(Command::new(program).args(arguments))
}

/// Runs a program when there is a disk.
pub fn disk(program: &[&str]) -> io::Result<()> {
    let disk = wait("virtio_blk", |device| entry(&device.join("block")))?;
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for fact in [
        "serial",
        "size",
        "ro",
        "queue/write_cache",
        "queue/max_segments",
        "queue/discard_max_bytes",
        "queue/write_zeroes_max_bytes",
    ] {
        let value = fs::read_to_string(disk.join(fact)).unwrap_or_default();
        println!("bhvirtio: {name}: {fact} {}", value.trim());
    }
    let queues = fs::read_dir(disk.join("mq")).map_or(0, Iterator::count);
    println!("bhvirtio: {name}: queues {queues}");
    let [program, arguments @ ..] = program else { return Ok(()) };
    done(Command::new(program).args(arguments))
}

/// Waits for a disk of this name; returns its device.
pub fn named(name: &str) -> io::Result<PathBuf> {
    let is = |disk: PathBuf| {
        let serial = fs::read_to_string(disk.join("serial")).unwrap_or_default();
        (serial.trim() == name).then_some(disk)
    };
    let disk = wait("virtio_blk", |device| entry(&device.join("block")).and_then(is))?;
    Ok(Path::new("/dev").join(disk.file_name().unwrap_or_default()))
}

/// Waits for a disk of this name, or takes one by its path; it must be read, and not be written.
pub fn refuses(name: &str) -> io::Result<()> {
    let path = if name.starts_with('/') { PathBuf::from(name) } else { named(name)? };
    fs::File::open(&path)?.read_exact(&mut [0; 4096])?;
    let open = fs::OpenOptions::new().write(true).open(&path);
    match open.and_then(|mut disk| disk.write_all(&[0; 4096]).and_then(|()| disk.sync_all())) {
        Ok(()) => Err(io::Error::other(format!("{} can be written", path.display()))),
        Err(why) => {
            println!("bhvirtio: {name} refuses to be written: {why}");
            Ok(())
        }
    }
}

/// Runs a shell on the console, and another one after its end: the other side may have begun anew.
pub fn terminal() -> io::Result<()> {
    loop {
        wait("virtio_console", |device| Some(device.to_owned()))?;
        println!("bhvirtio: a shell on hvc0");
        let script = "exec setsid -c sh -i </dev/hvc0 >/dev/hvc0 2>&1";
        let status = Command::new("sh").args(["-c", script]).status()?;
        println!("bhvirtio: the shell has ended: {status}");
        sleep(Duration::from_millis(100));
    }
}

/// Waits until an address answers, then until it does not, then until it does again.
pub fn reach(address: &str) -> io::Result<()> {
    let begun = Instant::now();
    for wanted in [true, false, true] {
        while Command::new("ping").args(["-c", "1", "-W", "1", "-q", address]).status()?.success()
            != wanted
        {
            if begun.elapsed() > LIMIT {
                return Err(io::Error::other(format!(
                    "{address}: it was to be {wanted} that it answers"
                )));
            }
            sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// A device of a driver, or what is looked for in it.
fn wait(driver: &str, look: impl Fn(&Path) -> Option<PathBuf>) -> io::Result<PathBuf> {
    // A built-in driver need not be loaded.
    let _ = Command::new("modprobe").args(["-qa", "bulkhead_virtio", driver]).status();
    let devices = Path::new("/sys/bus/virtio/drivers").join(driver);
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        let all = fs::read_dir(&devices).into_iter().flatten().flatten().map(|entry| entry.path());
        let own = |path: &PathBuf| {
            path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("virtio"))
        };
        if let Some(found) = all.filter(own).find_map(|path| look(&path)) {
            return Ok(found);
        }
        sleep(Duration::from_millis(5));
    }
    Err(io::Error::other(format!("no device of {driver} within {} s", LIMIT.as_secs())))
}

fn entry(folder: &Path) -> Option<PathBuf> {
    Some(fs::read_dir(folder).ok()?.flatten().next()?.path())
}
