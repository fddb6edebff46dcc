//! Single keys from the terminal, without echo and without waiting for Enter.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use std::io::{Read, stdin};
use std::os::fd::AsFd;
use std::time::Duration;

/// The terminal, put back as it was at the end.
pub struct Keys {
    before: Option<Termios>,
}

impl Keys {
    /// Takes the terminal; where standard input is none, no key ever comes.
    pub fn open() -> Self {
        let before = tcgetattr(stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, &raw);
        }
        Self { before }
    }

    /// The key pressed within `longest`, if any.
    pub fn wait(&self, longest: Duration) -> Option<u8> {
        if self.before.is_none() {
            std::thread::sleep(longest);
            return None;
        }
        let input = stdin();
        let mut waiting = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(longest).unwrap_or(PollTimeout::ZERO);
        if poll(&mut waiting, timeout).unwrap_or(0) == 0 {
            return None;
        }
        let mut key = [0];
        match stdin().lock().read(&mut key) {
            Ok(1) => Some(key[0]),
            // The terminal is gone: as good as being told to stop.
            _ => Some(b'q'),
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), SetArg::TCSANOW, before);
        }
    }
}
