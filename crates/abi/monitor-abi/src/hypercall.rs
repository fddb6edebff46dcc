//! Hypercalls: an instruction of the guest's kernel, with a number and four arguments in registers, and a result in
//! one. Their registers on each architecture are in docs/hypercalls.md. One call takes an address, [`KEEP`]; for the
//! others a monitor reads no guest memory. Every other register is preserved.
//!
//! An architecture may have further ways to a monitor. `bulkhead_monitor_abi_x86::port` has x86's.

use crate::report::Condition;
#[cfg(feature = "host")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Does nothing; returns [`OK`].
pub const NULL: u64 = 0x4248_0000;
/// Write up to 24 bytes to the sandbox's console ring. Arguments: length (0..=24), then the bytes in three words, first
/// one lowest.
pub const CONSOLE: u64 = 0x4248_0001;
/// End this sandbox. Argument: exit code (low 32 bits). Does not return.
pub const EXIT: u64 = 0x4248_0002;
/// The guest declares that it has booted: exits are counted as steady from here on.
pub const READY: u64 = 0x4248_0003;
/// Restart this sandbox. Does not return.
pub const RESTART: u64 = 0x4248_0004;
/// Ask another sandbox's monitor. Arguments: sandbox index, one of the `CONTROL_*`, each a right of its own in the
/// manifest: `stop`, `start`, `restart`. Returns [`OK`] once the request is posted (the outcome shows in the other's
/// report), or if it would change nothing. Returns [`BUSY`] while an earlier one is pending, or the right's time
/// between two requests is not over; else [`NOT_RUNNING`] or [`LOCKED`].
pub const CONTROL: u64 = 0x4248_0005;
/// Status of a sandbox that this one may stop, start or restart. Argument: sandbox index. Returns
/// `state | restarts << 8 | loaded << 40` ([`crate::report::State`]): 32 bits of restarts, and whether it runs what was
/// loaded into it; and [`STATUS_LOCKED`].
pub const STATUS: u64 = 0x4248_0006;
/// Bit of an answer to [`STATUS`]: the sandbox is locked ([`LOCK`]).
pub const STATUS_LOCKED: u64 = 1 << 41;

/// Offer a link of this sandbox's ([`crate::link`]). Arguments: sandbox index; link, and in bits 31:16 a tag that
/// means what both ends agree on. Needs `links` in the manifest. Returns [`OK`], [`BUSY`] while its last use is
/// not over, [`BAD_ARGUMENT`] if it is not this sandbox's.
pub const OFFER: u64 = 0x4248_0007;
/// Accept an offer. Arguments: link; epoch, as its owner's word has it. Returns [`OK`], [`BUSY`] while this sandbox's
/// last use of the link is not over or not closed, [`BAD_ARGUMENT`] if the offer does not stand.
pub const ACCEPT: u64 = 0x4248_0008;
/// Close this sandbox's end, or take back an offer. Argument: link. Returns [`OK`]: from then on this core does not
/// reach it, and the others do not soon. [`BUSY`]: another core is at it. [`BAD_ARGUMENT`]: there is none.
pub const CLOSE: u64 = 0x4248_0009;
/// State of a link. Arguments: link; 0 for this sandbox's word, 1 for the other party's. Returns
/// [`crate::link::state`]: phase in bits 2:0, epoch in 63:32. The owner's word has the sandbox to which the link is or
/// was offered in bits 15:8, and the tag in 31:16.
pub const LOOK: u64 = 0x4248_000A;
/// Name pages of this sandbox's RAM for snapshots ([`crate::snapshot`]), behind those that were named in this life.
/// Arguments: guest-physical address, a multiple of a page; pages. Needs `snapshot` in the manifest, and comes from the
/// first core. Returns [`OK`], [`DENIED`] for memory that is not the sandbox's, [`BAD_ARGUMENT`] where no room is left.
pub const KEEP: u64 = 0x4248_000B;
/// Take a snapshot of the named pages. Argument: those that have changed since the last call, as a set in the order of
/// their naming. From the first core. Returns [`OK`] once the snapshot is whole, [`BUSY`] while pages are left: call
/// again. [`BAD_ARGUMENT`]: no page was named.
pub const SNAPSHOT: u64 = 0x4248_000C;

/// Give all roles away ([`crate::role`]) and begin anew without them. Returns [`BUSY`] if this sandbox has none, or no
/// other holder is there to take one; else it does not return. [`NO_CALL`]: the manifest gives it no role.
pub const GIVE: u64 = 0x4248_000D;
/// Leave this core to the Linux that has run before its monitor. It goes on behind the call as the system of the
/// machine, with interrupts off. Its tables map the start-up page and the core's control block to themselves. Returns
/// [`OK`] there. Returns [`BUSY`] while another sandbox has not ended, and [`NO_CALL`] in every other sandbox and
/// to every program.
pub const RELEASE: u64 = 0x4248_000E;
/// Lock this sandbox, or unlock it. Argument: 1 or 0. From the first core. While it is locked, no other sandbox stops
/// or restarts it, whatever right it has. Returns [`OK`], and [`NO_CALL`] without `lockable` in the manifest.
pub const LOCK: u64 = 0x4248_000F;

/// [`CONTROL`]: stop it.
pub const CONTROL_STOP: u64 = 1;
/// [`CONTROL`]: start it if it is stopped.
pub const CONTROL_START: u64 = 2;
/// [`CONTROL`]: stop it and start it anew. One that does not run is started, by whoever may do that, too.
pub const CONTROL_RESTART: u64 = 3;
/// Requests of [`CONTROL`]; in arrays of all, [`CONTROL_STOP`] is first.
pub const REQUESTS: usize = 3;

/// Done.
pub const OK: u64 = 0;
/// No such call, or called from user mode.
pub const NO_CALL: u64 = u64::MAX;
/// An argument is out of its range.
pub const BAD_ARGUMENT: u64 = u64::MAX - 1;
/// The manifest does not grant it; a record is left.
pub const DENIED: u64 = u64::MAX - 2;
/// An earlier request is still pending, or it is too early for the next; try again.
pub const BUSY: u64 = u64::MAX - 3;
/// A restart of a sandbox that does not run, by one that may not start it.
pub const NOT_RUNNING: u64 = u64::MAX - 4;
/// The sandbox has locked itself: it is not stopped or restarted.
pub const LOCKED: u64 = u64::MAX - 5;

/// Most bytes of one [`CONSOLE`].
pub const CONSOLE_BYTES: u64 = 24;

/// Call that a guest makes and may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Nothing but this result.
    Answer(u64),
    /// So many bytes for the console.
    Console(u64),
    /// Its end, with this code.
    Exit(u32),
    /// It has booted.
    Ready,
    /// A restart of itself.
    Restart,
    /// A request of another sandbox's monitor, one of the `CONTROL_*`.
    Control(u32, u64),
    /// Another sandbox's status.
    Status(u32),
    /// A call about the link of this number.
    Link(u32),
    /// A call that the manifest does not grant, by the missing right.
    Denied(Condition),
}

/// The number of a call from a privilege level: from user mode none is one of a call.
/// `enforced` says whether a rule holds: builds for the mutation gate leave one out.
#[inline(always)]
#[must_use]
pub fn number(call: u64, privilege: u8, enforced: impl Fn(&str) -> bool) -> u64 {
    if privilege != 0 && enforced("hypercall-cpl") { NO_CALL } else { call }
}

/// Rights that a manifest gives a sandbox, as sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "host", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct Rights {
    /// Sandboxes that it may stop, start and restart: by request, [`CONTROL_STOP`] first.
    pub control: [u32; REQUESTS],
    /// Sandboxes to which it may offer a link.
    pub offer: u32,
    /// Links that it may offer or be offered.
    pub links: u32,
}

impl Rights {
    /// Sandboxes of which it may make a request.
    #[must_use]
    pub fn over(&self, request: u64) -> u32 {
        self.control.get(index(request)).copied().unwrap_or(0)
    }
}

/// Returns the index of a request in arrays of all; of what is none, beyond them.
#[must_use]
pub const fn index(request: u64) -> usize {
    request.wrapping_sub(CONTROL_STOP) as usize
}

const fn is_request(number: u64) -> bool {
    index(number) < REQUESTS
}

/// Decides on a call with its first two arguments, by a sandbox with these rights, of the machine's `sandboxes`.
#[must_use]
pub fn decide(
    call: u64,
    [first, second]: [u64; 2],
    sandboxes: u32,
    rights: &Rights,
    enforced: impl Fn(&str) -> bool,
) -> Call {
    let to = first.min(u64::from(u32::MAX)) as u32;
    let set = match call {
        CONTROL if is_request(second) => rights.over(second),
        CONTROL | STATUS => rights.control.iter().fold(0, |all, set| all | set),
        OFFER => rights.offer,
        ACCEPT..=LOOK => rights.links,
        _ => u32::MAX,
    };
    let granted = set.checked_shr(to).unwrap_or(0) & 1 != 0;
    let controls = to < sandboxes && (granted || !enforced("control-right"));
    match call {
        NULL => Call::Answer(OK),
        CONSOLE if first > CONSOLE_BYTES && enforced("hypercall-length") => {
            Call::Answer(BAD_ARGUMENT)
        }
        CONSOLE => Call::Console(first),
        EXIT => Call::Exit(first as u32),
        READY => Call::Ready,
        RESTART => Call::Restart,
        CONTROL | STATUS if !controls => Call::Denied(Condition::Control),
        CONTROL if !is_request(second) => Call::Answer(BAD_ARGUMENT),
        CONTROL => Call::Control(to, second),
        STATUS => Call::Status(to),
        OFFER if !granted && enforced("link-right") => Call::Denied(Condition::Offer),
        ACCEPT..=LOOK if !granted && enforced("link-right") => Call::Denied(Condition::Link),
        OFFER => Call::Link(second as u16 as u32),
        ACCEPT..=LOOK => Call::Link(to),
        _ if enforced("hypercall-number") => Call::Answer(NO_CALL),
        _ => Call::Answer(OK),
    }
}
