//! `make bench`: the figures that the project promises, each with its bound.
//!
//! A [`Part`] runs one system or two and turns what the plugin and the
//! monitors counted into [`Figure`]s. Parts share nothing, so they run side by
//! side: virtual time doesn't care.

mod audit;
mod block;
mod channel;
mod exits;
mod figure;
mod flight;
mod inject;
mod io;
mod isolation;
mod kernel;
mod linux;
mod monitor;
mod peer;
mod plots;
mod policies;
mod recovery;
mod reopen;
mod rights;
mod sched;
mod snapshot;
mod standby;
pub(crate) mod store;
mod system;
mod tcp;
mod under;
mod vmx;
mod voter;
mod watchdog;
mod web;

pub use figure::{Figure, Must, table};
pub use kernel::activation;

use crate::Failure;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Figures of a part.
pub type Found = Result<Vec<Figure>, Failure>;

/// A run or two, and the figures that come out of it.
pub struct Part {
    /// Its figures, or the beginning of their names.
    pub rows: &'static [&'static str],
    measure: fn() -> Found,
}

impl Part {
    /// Measures.
    ///
    /// # Errors
    /// A run that failed, or left no figure.
    pub fn measure(&self) -> Found {
        (self.measure)()
    }
}

/// Parts of a few seconds. Their figures are tests too: each has a bound.
pub const SHORT: [Part; 23] = [
    part(&["exits.linux_load"], exits::load),
    part(&["exits.linux_smp_other"], exits::smp),
    part(&["exits.linux_forkexec"], exits::forkexec),
    part(&["exits.linux_idle"], exits::idle),
    part(&["monitor.hypercall", "monitor.icr", "recover.exit_enter"], monitor::calls),
    part(&["monitor.restart"], monitor::restart),
    part(&["recover.hang_found", "exits.watchdog"], watchdog::found),
    part(&["recover.snapshot_64k"], snapshot::taken),
    part(&["kernel.snapshot_64k"], kernel::snapshot),
    part(&["recover.takeover"], standby::takeover),
    part(&["recover.remote_ipi"], standby::remote_ipi),
    part(&["recover.tick", "recover.sweep_word", "recover.peer_look"], watchdog::tick),
    part(&["monitor.text", "boot.instructions"], monitor::sizes),
    part(&["audit.seconds"], audit::seconds),
    part(&["vmx.text_kernel"], vmx::text),
    part(&["vmx.lines", "vmx.lines_shell"], vmx::lines),
    part(&["monitor.lines", "boot.lines"], monitor::lines),
    part(&sched::ROWS, sched::operations),
    part(
        &["kernel.call", "kernel.reply_recv", "kernel.signal", "kernel.wait", "kernel.schedule"],
        kernel::calls,
    ),
    part(&["kernel.replenish", "kernel.timeout_to_handler"], kernel::times),
    part(&["kernel.entry_longest"], kernel::entries),
    part(&["io.irq_to_handler", "exits.irq_to_handler"], || io::interrupt(&io::AMD_VI)),
    // And `channel.heard_` and `channel.echoes_`, for the plot.
    part(
        &[
            "channel.isolation_lost",
            "channel.isolation_back",
            "channel.echo_lost",
            "channel.echo_back",
        ],
        recovery::programs,
    ),
];

/// The others; the longest come first.
const LONG: &[Part] = &[
    part(
        &[
            "monitor.doorbell",
            "monitor.doorbell_sandboxes",
            "monitor.doorbell_links",
            "monitor.doorbell_pages",
        ],
        monitor::doorbells,
    ),
    part(&["flight.jitter_idle"], flight::idle),
    part(&["flight.jitter_io"], io::jitter),
    part(&["flight.jitter_driver"], flight::driver),
    part(&["flight.jitter_life", "create.bare"], flight::life),
    part(&["flight.jitter_watched", "top.exits"], flight::watched),
    part(&["flight.jitter_loaded", "flight.missed", "exits.flight"], flight::jitter),
    part(&["sched.oracle_"], sched::oracle),
    part(&["io.blk", "io.net", "io.monitor"], || io::requests(&io::AMD_VI)),
    part(&["io.vtd_blk", "io.vtd_net", "io.vtd_monitor"], || io::requests(&io::VT_D)),
    part(
        &[
            "block.ramdisk_",
            "block.poll_",
            "block.adaptive_1",
            "block.adaptive_4",
            "block.adaptive_light",
            "block.interrupt_vs_spin_1",
            "exits.block_spin",
            "exits.block_adaptive",
        ],
        block::ramdisk,
    ),
    part(&["block.loop_"], block::looped),
    part(&["block.ublk_"], block::ublk),
    part(&["block.plots_ram", "block.adaptive_vs_best_worst_point_ram"], || {
        plots::plots(&plots::MEMORY)
    }),
    part(&["block.plots_loop", "block.adaptive_vs_best_worst_point_loop"], || {
        plots::plots(&plots::LOOP)
    }),
    part(&["block.plots_sata", "block.adaptive_vs_best_worst_point_sata"], || {
        plots::plots(&plots::SATA)
    }),
    part(&["block.wall_vs_direct_", "exits.block_driver"], block::wall),
    part(&["block.kernel_client_"], block::kernel_client),
    part(&["exits.block_doorbell"], block::doorbells),
    part(&["exits.linux_io", "exits.linux_boot_io"], io::exits),
    part(
        &[
            "under.getpid",
            "under.fork_exec",
            "under.timer_median",
            "under.blk_rand4k",
            "under.after_disable",
            "exits.under_steady",
            "enable.pause_core",
            "enable.total",
        ],
        under::rows,
    ),
    part(&["under.xapic_", "exits.under_xapic"], under::xapic),
    part(&["enable.lost"], under::lost),
    part(&["exits.linux_io_smp"], io::exits_smp),
    part(&["io.vtd_irq_to_handler", "exits.vtd_irq_to_handler"], || io::interrupt(&io::VT_D)),
    part(&[PEER], peer::rows),
    part(&["linux.", "exits.linux_boot"], linux::rows),
    part(&["kernel.call_fpu", "kernel.reply_recv_fpu"], kernel::vectors),
    part(&["kernel.trace_event"], kernel::trace),
    part(&["kernel.irq_to_thread", "exits.kernel_irq"], kernel::interrupt),
    part(&["kernel.line_to_thread", "exits.kernel_line"], kernel::line),
    part(
        &[
            "kernel.timeout_rollback",
            "kernel.timeout_emergency",
            "kernel.timeout_extend",
            "kernel.timeout_kill",
        ],
        policies::overruns,
    ),
    part(&["kernel.hog_"], isolation::hog),
    part(&["kernel.aes_"], isolation::aes),
    part(&["kernel.storm", "flight.storm"], isolation::storm),
    part(&["kernel.interrupt_"], isolation::entries),
    part(&["kernel.criticality_"], policies::criticality),
    part(&["kernel.mixed_"], policies::mixed),
    part(&["kernel.edf_"], policies::edf),
    part(&["kernel.text", "kernel.start"], kernel::text),
    part(&["channel.message", "channel.spin_kick"], channel::messages),
    part(&["channel.doorbell", "exits.channel_"], channel::doorbell),
    part(&["channel.flood", "kernel.bell_entry", "flight.jitter_right_bells"], channel::flood),
    part(&["flight.jitter_right_networks"], channel::network),
    part(&rights::DEADLY_ROWS, rights::deadly),
    part(&rights::ALIVE_ROWS, rights::alive),
    part(&["flight.jitter_right_accepted"], rights::accepted),
    part(&["channel.rate_"], channel::rates),
    part(&["channel.restarted_"], recovery::sandbox),
    part(&["recover.driver", "recover.interface"], reopen::driver),
    // And `recover.web_local_asked_` and the like, for the plots.
    part(&["recover.web_gap_local", "recover.web_slowest", "recover.web_wrong"], web::local),
    part(&["recover.web_gap_remote", "recover.web_lost"], web::remote),
    part(&["block.recovery_ms"], || store::recovery(&store::VIRTIO)),
    part(&["block.recovery_nvme_ms"], || store::recovery(&store::NVME)),
    part(&["block.recovery_ahci_ms"], || store::recovery(&store::AHCI)),
    part(&["channel.tcp_"], tcp::streams),
    part(&["net.wall_tcp"], tcp::wall),
    part(&["recover.flight_missed_hot", "recover.replace"], standby::flight),
    part(&["recover.flight_missed_tmr", "recover.flight_replaced"], voter::faults),
    part(&["inject.unnoticed_wrong"], voter::flips),
    part(&["exits.vmx_linux_load"], vmx::load),
    part(&["exits.vmx_linux_idle"], vmx::idle),
    part(&["vmx.hypercall", "vmx.cpuid", "vmx.icr"], vmx::calls),
    part(&["clock."], monitor::clock),
];

/// Measured natively, when all others are done: they need the machine for themselves.
const ALONE: [Part; 2] =
    [part(&channel::ROWS, channel::native), part(&["inject.harm", "inject.rate"], inject::rows)];

/// Prefix of rows that stand beside those named without it.
const PEER: &str = "peer.";

const fn part(rows: &'static [&'static str], measure: fn() -> Found) -> Part {
    Part { rows, measure }
}

/// Runs every part that may find a figure with one of these prefixes, with commas between them. Failures are told in
/// words, after the figures.
#[must_use]
pub fn run(only: &str) -> (Vec<Figure>, Vec<String>) {
    let only: Vec<&str> = only.split(',').collect();
    let one = |name: &str| only.iter().any(|only| name.starts_with(only) || only.starts_with(name));
    let wanted = |part: &&Part| part.rows.iter().any(|name| one(name));
    let parts: Vec<_> = LONG.iter().chain(&SHORT).filter(wanted).collect();
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..parts.len()).collect());
    let found = Mutex::new(Vec::new());
    let measure = |n: usize, part: &Part| {
        let names = part.rows.join(", ");
        let begun = Instant::now();
        let result = part.measure().map_err(|why| format!("{names}: {why}"));
        eprintln!("bench: {names} took {:.0} s", begun.elapsed().as_secs_f64());
        found.lock().unwrap_or_else(PoisonError::into_inner).push((n, result));
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(n) = next(&queue) {
                    measure(n, parts[n]);
                }
            });
        }
    });
    for (n, part) in ALONE.iter().filter(wanted).enumerate() {
        measure(parts.len() + n, part);
    }
    sort(found.into_inner().unwrap_or_else(PoisonError::into_inner), &only)
}

fn next(queue: &Mutex<VecDeque<usize>>) -> Option<usize> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// Figures in an order that does not depend on who was first.
fn sort(
    mut found: Vec<(usize, Result<Vec<Figure>, String>)>,
    only: &[&str],
) -> (Vec<Figure>, Vec<String>) {
    found.sort_by_key(|(n, _)| *n);
    let (mut figures, mut failures) = (Vec::new(), Vec::new());
    for (_, result) in found {
        match result {
            Ok(more) => figures.extend(more),
            Err(why) => failures.push(why),
        }
    }
    figures.retain(|figure: &Figure| only.iter().any(|only| figure.row.name.starts_with(only)));
    figures.sort_by(|a, b| a.row.name.cmp(&b.row.name));
    (beside(figures), failures)
}

/// Puts the peer's values into the rows that they belong to.
fn beside(figures: Vec<Figure>) -> Vec<Figure> {
    let (peers, mut figures): (Vec<_>, Vec<_>) =
        figures.into_iter().partition(|figure| figure.row.name.starts_with(PEER));
    for peer in peers {
        let name = &peer.row.name[PEER.len()..];
        match figures.iter_mut().find(|figure| figure.row.name == name) {
            Some(figure) => {
                figure.row = figure.row.clone().beside(peer.row.value);
                figure.note = format!("{} (peer: {})", figure.note, peer.note);
            }
            None => figures.push(peer),
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Row;

    #[test]
    fn peers_go_beside_their_rows() {
        let figure = |name: &str, value| Figure::new(Row::new(name, "ns", value).against(2.0));
        let all = beside(vec![figure("a", 1.0), figure("peer.a", 6.0), figure("peer.b", 7.0)]);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].row.peer_ratio, Some(3.0));
        assert_eq!(all[1].row.name, "peer.b");
    }
}
