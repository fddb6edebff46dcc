//! The newest state in a mailbox, over the lives of its writer.

use bulkhead_channel::Stop;

/// Looks for one reader; the second one follows news of a new life, the third one a life that began meanwhile.
const LOOKS: u32 = 3;

/// The newest state that was read.
#[derive(Clone, Copy, Debug)]
pub struct Newest<T> {
    state: Option<T>,
    renewed: bool,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self { state: None, renewed: false }
    }
}

impl<T: Copy> Newest<T> {
    /// Reads by `read`, which gives a state that it has not given yet, or a reason. Returns a state that is new.
    ///
    /// A state of an earlier life of the writer's is forgotten. Whatever the writer does, these are three reads at
    /// most.
    pub fn look(&mut self, mut read: impl FnMut() -> Result<T, Stop>) -> Option<T> {
        for _ in 0..LOOKS {
            match read() {
                Ok(state) => {
                    self.state = Some(state);
                    return self.state;
                }
                Err(Stop::Wait) => return None,
                Err(_) => (self.state, self.renewed) = (None, true),
            }
        }
        None
    }

    /// Tells once of news of the writer's life since the last call: it began anew, or left.
    #[must_use]
    pub const fn renewed(&mut self) -> bool {
        core::mem::replace(&mut self.renewed, false)
    }

    /// Returns the newest state of the writer's present life.
    #[must_use]
    pub const fn state(&self) -> Option<T> {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(newest: &mut Newest<u32>, answers: &[Result<u32, Stop>]) -> (Option<u32>, usize) {
        let mut all = answers.iter();
        let found = newest.look(|| *all.next().expect("no more reads than answers"));
        (found, answers.len() - all.len())
    }

    #[test]
    fn an_earlier_life_is_forgotten() {
        let mut newest = Newest::default();
        assert_eq!(look(&mut newest, &[Ok(7)]), (Some(7), 1));
        assert_eq!(look(&mut newest, &[Err(Stop::Wait)]), (None, 1));
        assert_eq!((newest.state(), newest.renewed()), (Some(7), false));
        assert_eq!(look(&mut newest, &[Err(Stop::Lost), Err(Stop::Wait)]), (None, 2));
        assert_eq!((newest.state(), newest.renewed(), newest.renewed()), (None, true, false));
        assert_eq!(look(&mut newest, &[Err(Stop::Lost), Ok(9)]), (Some(9), 2));
        assert_eq!(newest.state(), Some(9));
    }

    #[test]
    fn no_writer_makes_it_read_for_ever() {
        assert_eq!(look(&mut Newest::default(), &[Err(Stop::Lost); 3]), (None, 3));
    }
}
