//! Plots of a disk through the wall, as IDDR's figures 5.1 to 5.7. Ways to be notified are compared by the number of
//! threads, for each device behind the disk and each way of access.

use super::Found;
use super::block::{WAYS, Window, script};
use super::figure::{Figure, Must};
use super::system::{Ran, System};
use crate::Failure;
use crate::rows::Row;
use std::collections::BTreeMap;

const THREADS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// Ways of access, as sysbench names them, in the order of their numbers in events, which begin with 1.
const ACCESS: [&str; 4] = ["rndrd", "rndwr", "rndrw", "seqrd"];
/// Where an event's value has that number.
const ACCESS_AT: u32 = 48;
/// Requests of a point: enough that a kernel's own work beside them, some 500,000 instructions, is 1 % of them.
const REQUESTS: u32 = 2048;

/// A device behind the disk: its name in rows, how its Linux makes it, its path, the sandbox' devices, and the
/// machine's drive.
pub struct Device {
    name: &'static str,
    made: &'static str,
    path: &'static str,
    function: &'static str,
    drive: Option<&'static str>,
}

pub const MEMORY: Device = Device {
    name: "ram",
    made: "modprobe brd rd_nr=1 rd_size=65536",
    path: "/dev/ram0",
    function: "",
    drive: None,
};
pub const LOOP: Device = Device {
    name: "loop",
    made: "modprobe loop&&truncate -s 64M /tmp/disk&&losetup /dev/loop0 /tmp/disk",
    path: "/dev/loop0",
    function: "",
    drive: None,
};
/// With a controller as SATA disks have it.
pub const SATA: Device = Device {
    name: "sata",
    made: "modprobe ahci;modprobe sd_mod;sleep 2",
    path: "/dev/sda",
    function: ", \"pci:00:1f.2\"",
    drive: Some("disk3"),
};

/// Runs all points of a device and a way to be notified, in one boot.
fn run(device: &Device, way: &str) -> Result<Ran, Failure> {
    let Device { name, made, path, function, drive } = device;
    // Writes in the kernels' own time, a journal's too, and waits for them would be in some points and not in others.
    let still = "echo 0 >/proc/sys/vm/dirty_writeback_centisecs;echo 90 >/proc/sys/vm/dirty_ratio;echo 90 >/proc/sys/vm/dirty_background_ratio";
    let server = format!(
        "{still};{made}&&zcat /ext4.gz>{path}&&sync&&bhvirtio block lan {path} --serial {name}"
    );
    let client = format!(
        "{still};bhvirtio disk sleep 4&&mkdir /mnt&&mount -t ext4 -o noatime -o lazytime -o commit=600 -o data=writeback /dev/vda /mnt&&bhio files=/mnt points={REQUESTS}"
    );
    let mut system = System::new("block", format!("block-plot-{name}-{way}"));
    if let Some(drive) = drive {
        system = system.disk(drive)?;
    }
    system
        .changed("\"doorbell\"", format!("\"{way}\""))
        .changed(
            "\"artifact:iperf.cpio\", cmdline = \"console=ttyS2",
            "\"artifact:virtio.cpio\", cmdline = \"console=ttyS2",
        )
        .changed("[\"uart2\"]", format!("[\"uart2\"{function}]"))
        .with("one", script(&client))
        .with("two", script(&server))
        .run()
}

/// All points of a device; and the one at which `adaptive` is worst, against the better of both others.
pub fn plots(device: &Device) -> Found {
    let (mut figures, mut throughput) = (Vec::new(), BTreeMap::new());
    let name = device.name;
    for way in WAYS {
        let ran = run(device, way)?;
        for (n, access) in ACCESS.iter().enumerate() {
            for threads in THREADS {
                let load = (n as u64 + 1) << ACCESS_AT | threads << 32;
                let window = Window::find(&ran.counts, load)?;
                let point = format!("{access}_{way}_{threads}");
                let rate = 1e9 / window.own();
                let row = Row::new(&format!("block.plots_{name}_{point}"), "requests/s", rate);
                figures.push(Figure::new(row).note(window.note()));
                let all = format!("block.plots_{name}_cpu_{point}");
                figures.push(Figure::new(Row::new(&all, "instructions", window.all())));
                throughput.insert((n, threads, way), rate);
            }
        }
    }
    let (worst, point) = worst(&throughput).ok_or("no point")?;
    let row = format!("block.adaptive_vs_best_worst_point_{name}");
    let row = Row::new(&row, "of the better", worst);
    figures.push(Figure::new(row).must(Must::AtLeast(0.97)).note(point));
    Ok(figures)
}

/// Number of the way of access, threads, and way to be notified.
type Point = (usize, u64, &'static str);

/// The smallest part that `adaptive` reaches of the better of both others, and where.
fn worst(throughput: &BTreeMap<Point, f64>) -> Option<(f64, String)> {
    let adaptive = throughput.iter().filter(|((.., way), _)| *way == WAYS[2]);
    let part = |(&(access, threads, _), value): (&Point, &f64)| {
        let of = |way| throughput.get(&(access, threads, way)).copied();
        let best = of(WAYS[0])?.max(of(WAYS[1])?);
        Some((value / best, format!("{}, {threads} threads", ACCESS[access])))
    };
    let all = adaptive.map(part).collect::<Option<Vec<_>>>()?;
    all.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_point_is_found() {
        let mut all = BTreeMap::new();
        for (threads, [rung, polled, adapted]) in [(1, [5.0, 10.0, 9.9]), (2, [10.0, 5.0, 9.0])] {
            let values = [rung, polled, adapted];
            all.extend(WAYS.into_iter().zip(values).map(|(way, value)| ((0, threads, way), value)));
        }
        assert_eq!(worst(&all), Some((0.9, "rndrd, 2 threads".into())));
        all.remove(&(0, 1, WAYS[1]));
        assert_eq!(worst(&all), None);
    }
}
