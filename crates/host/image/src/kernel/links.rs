//! Links, in the hands of programs. The entries by which a program sees a link are baked here. Their table is in
//! nobody's tree until the kernel puts it there.

use super::build::{Build, Place};
use super::program::Made;
use super::target::Kernels;
use bulkhead_arch::{Memory, PageFormat, Rights as PageRights};
use bulkhead_kernel::abi::name::{Link, Sandbox};
use bulkhead_kernel::abi::{Code, Grant, Kind, Rights, at, label};
use bulkhead_kernel::{Machine, PageTable, Ref};
use bulkhead_layout::PAGE;
use bulkhead_layout::link::MAX_LINKS;
use bulkhead_plan::kernel::{Kernel, Program};
use bulkhead_plan::{Link as Reserved, Plan};

const _: () = assert!(at::LINKS_END - at::LINKS == MAX_LINKS as u64 * at::LINK);

/// Bytes of a link's object, as a power of two.
const LINK_BITS: u8 = 6;

impl<K: Kernels> Build<K> {
    /// Memory in which the objects of all links of a kernel lie side by side; the first one's offset.
    pub fn room_for_links(&mut self, kernel: &Kernel) -> Result<u32, String> {
        let count = kernel.programs.iter().map(|program| program.links.len()).sum::<usize>();
        if count == 0 {
            return Ok(0);
        }
        let bits = count.next_power_of_two().trailing_zeros() as u8 + LINK_BITS;
        let memory = self.make(Kind::Untyped, bits, 1)?;
        Ok(self.cap(memory).object)
    }

    /// Gives a program its links, and tells it which sandboxes it may offer them to. Their objects begin at `next`.
    pub fn links(
        &mut self,
        plan: &Plan,
        index: usize,
        program: &Program,
        made: &mut Made,
        next: &mut u32,
    ) -> Result<(), String> {
        made.tell_sandbox(index, plan.sandboxes.len());
        let mut known = 0u32;
        for &number in &program.links {
            let link = plan.links.get(number).ok_or(format!("there is no link {number}"))?;
            let mine = link.owner == index;
            let others = if mine { &link.to[..] } else { &[] };
            let to = others.iter().fold(0u32, |set, to| set | 1 << to);
            let table = self.link_table(made.space, number, link, mine)?;
            let place = self.link(*next, [number as u32, to], table, made.space)?;
            *next += 1 << LINK_BITS;
            let right = made.take(self, place, Rights::READ.and(Rights::WRITE), 0)?;
            let grant = Grant::Link(Link {
                mine,
                number: number as u16,
                owner: link.owner as u16,
                right,
                sent: link.sent as u32,
                start: at::LINKS + number as u64 * at::LINK,
            });
            made.tell(&plan.sandboxes[link.owner].name, grant)?;
            for other in others.iter().filter(|other| known >> **other & 1 == 0) {
                let grant = Grant::Sandbox(Sandbox { index: *other as u32 });
                made.tell(&plan.sandboxes[*other].name, grant)?;
            }
            known |= to;
        }
        Ok(())
    }

    /// The table that maps a link, filled; those above it are put in place. Its offset.
    fn link_table(
        &mut self,
        space: Place,
        number: usize,
        &Reserved { gpa, len, sent, .. }: &Reserved,
        mine: bool,
    ) -> Result<u32, String> {
        let address = at::LINKS + number as u64 * at::LINK;
        if len > at::LINK {
            return Err(format!(
                "link {number} is longer than {:#x} bytes, as one table maps",
                at::LINK
            ));
        }
        let table = loop {
            let table = self.make(Kind::Table, 0, 1)?;
            match self.try_call(table, label::MAP_TABLE, [u64::from(space), address, 0, 0]) {
                Ok(_) => (),
                // The next one would be the link's own, which no call puts there.
                Err(status) if status.code() == Some(Code::Occupied) => break table,
                Err(status) => return Err(format!("a link cannot be mapped: {status:x?}")),
            }
        };
        let table = self.cap(table).object;
        for n in 0..len / PAGE {
            let owners = n * PAGE < sent;
            let rights = if owners == mine { PageRights::RW } else { PageRights::R };
            let entry = K::Pages::page(gpa + n * PAGE, rights, Memory::Normal, 0);
            self.machine().get_mut(Ref::<PageTable>::new(table)).0[n as usize] = entry;
        }
        Ok(table)
    }
}
