//! The traces of a run of the web server's system (systems/bench/web.toml): each request with its answer, and each
//! failure of the driver. Times are microseconds since the processors' start, which all sandboxes read in virtual time.

use bulkhead_run::Outcome;

/// A request: when it went, and when all of its answer was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The former.
    pub asked: u64,
    /// The latter.
    pub answered: Option<u64>,
}

/// A failure that was planted in the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: String,
    /// When.
    pub at: u64,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Web {
    /// In the order in which they went.
    pub requests: Vec<Request>,
    /// Answers that were wrong, torn, or there twice, and connections that broke.
    pub wrong: u64,
    /// The latter.
    pub lost: u64,
    /// Failures that were planted.
    pub faults: Vec<Fault>,
    /// Times at which a driver was found by the server.
    pub begun: Vec<u64>,
    /// The other one has taken the place.
    pub replaced: bool,
    /// Times at which a server began and went on with connections.
    pub resumed: Vec<u64>,
    /// Records of connections that it could not go on with.
    pub broken: u64,
}

impl Web {
    /// Reads the client's serial port and the server's console.
    ///
    /// # Errors
    /// The client did not come to its end.
    pub fn read(outcome: &Outcome, console: &str) -> Result<Self, String> {
        let port = outcome.logs.iter().find(|log| log.name == "serial port 2");
        let path = &port.ok_or("the client said nothing")?.path;
        let said = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::of(&String::from_utf8_lossy(&said), console)
    }

    fn of(said: &str, console: &str) -> Result<Self, String> {
        let mut web = Self { requests: requests(said), ..Self::default() };
        let last = said.lines().filter_map(|line| line.trim().strip_prefix("web: "));
        let numbers = |line: &str| {
            let words = line.split(' ').map(|word| word.trim_end_matches(','));
            words.filter_map(|word| word.parse().ok()).collect::<Vec<u64>>()
        };
        let counts = last.filter(|line| line.ends_with(" lost")).map(numbers).next_back();
        let Some(&[asked, answered, wrong, lost]) = counts.as_deref() else {
            return Err("the client did not come to its end".into());
        };
        (web.wrong, web.lost) = (wrong, lost);
        if (asked, answered) != (web.requests.len() as u64, web.answers().len() as u64) {
            return Err(format!("the client counts {asked} requests and {answered} answers"));
        }
        for line in console.lines() {
            if let Some((_, fault)) = line.split_once(": fault ") {
                web.faults.extend(event(fault).map(|(kind, at)| Fault { kind: kind.into(), at }));
            } else if let Some((_, driver)) = line.split_once("server: driver ") {
                web.begun.extend(event(driver).map(|(_, at)| at));
            } else if let Some((_, server)) = line.split_once(" connections go on, ") {
                let (broken, at) = server.split_once(" broken, at ").unwrap_or_default();
                web.broken += broken.parse::<u64>().unwrap_or(0);
                web.resumed.extend(event(&format!("resumed at {at}")).map(|(_, at)| at));
            }
            web.replaced |= line.contains("another one takes its place");
        }
        // Lines of several sandboxes.
        web.faults.sort_by_key(|fault| fault.at);
        web.begun.sort_unstable();
        web.resumed.sort_unstable();
        Ok(web)
    }

    /// Times of all answers, in their order.
    #[must_use]
    pub fn answers(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.requests.iter().filter_map(|one| one.answered).collect();
        all.sort_unstable();
        all
    }

    /// Returns the longest time without an answer, and when that began. The requests stop before the last answer.
    #[must_use]
    pub fn gap(&self) -> (u64, u64) {
        let first = self.requests.first().map(|one| one.asked);
        let all: Vec<u64> = first.into_iter().chain(self.answers()).collect();
        let last = self.requests.last().map_or(0, |one| one.asked);
        let gaps =
            all.windows(2).filter(|pair| pair[0] < last).map(|pair| (pair[1] - pair[0], pair[0]));
        gaps.max().unwrap_or_default()
    }

    /// Returns the longest time of a request; `None`: one has no answer.
    #[must_use]
    pub fn slowest(&self) -> Option<u64> {
        let took = self.requests.iter().map(|one| Some(one.answered?.saturating_sub(one.asked)));
        took.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Counts the failures behind which another life of a driver began, before the next failure and the last answer.
    #[must_use]
    pub fn healed(&self) -> usize {
        self.behind(&self.begun)
    }

    /// Counts those behind which a server went on with connections.
    #[must_use]
    pub fn outlived(&self) -> usize {
        self.behind(&self.resumed)
    }

    fn behind(&self, begun: &[u64]) -> usize {
        let last = self.answers().last().copied().unwrap_or(0);
        let until = self.faults.iter().skip(1).map(|next| next.at).chain([last]);
        let began =
            |(fault, until): &(&Fault, u64)| begun.iter().any(|at| (fault.at..*until).contains(at));
        self.faults.iter().zip(until).filter(began).count()
    }

    /// Returns the last failure before a time.
    #[must_use]
    pub fn before(&self, at: u64) -> Option<&Fault> {
        self.faults.iter().rev().find(|fault| fault.at <= at)
    }
}

/// Holders of the role in systems/bench/web-remote.toml, with the beginning of their programs' names.
const HOLDERS: [(&str, &str); 2] = [("web", ""), ("spare", "spare-")];
/// Text in front of that their failures are put.
pub const CLIENT: &str = "[[sandbox]]\nname = \"client\"\n";

/// A program for each holder that lets the whole sandbox fail at such times, and [`CLIENT`].
#[must_use]
pub fn dooms(times: &str) -> String {
    let one = |(sandbox, prefix): (&str, &str)| {
        let name = format!("{prefix}doom");
        format!(
            "[[program]]\nname = \"{name}\"\nsandbox = \"{sandbox}\"\nfile = \"artifact:web-doom\"
args = \"role=website {times}\"\nends_sandbox = true\nsignals = [\"pause\"]\nwaits = [\"pause\"]\nchannels = [\"connections\"]
[[context]]\nname = \"{name}\"\nsandbox = \"{sandbox}\"\nbudget = \"90 ms\"\nperiod = \"100 ms\"\nguaranteed = false
[[thread]]\nname = \"doom\"\nprogram = \"{name}\"\npriority = 250\ncontext = \"{name}\"\nstack = \"16 KiB\"
[[notification]]\nname = \"pause\"\nsandbox = \"{sandbox}\"\n\n"
        )
    };
    HOLDERS.map(one).concat() + CLIENT
}

/// `KIND at N us`.
fn event(text: &str) -> Option<(&str, u64)> {
    let (kind, rest) = text.split_once(" at ")?;
    Some((kind, rest.trim().strip_suffix(" us")?.parse().ok()?))
}

/// The lines of requests: number, when it went, when its answer was there or `-`.
fn requests(said: &str) -> Vec<Request> {
    let one = |line: &str| {
        let mut words = line.trim().strip_prefix("web: ")?.split(' ');
        let _: u64 = words.next()?.parse().ok()?;
        let (asked, answered) = (words.next()?.parse().ok()?, words.next()?);
        if words.next().is_some() || answered != "-" && answered.parse::<u64>().is_err() {
            return None;
        }
        Some(Request { asked, answered: answered.parse().ok() })
    };
    said.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "web: asks 10.0.2.16:80\r\nweb: 0 1000 1500\r\nweb: 1 2000 9000\r\nweb: 2 3000 3400\r\n\
                        web: 3 9500 9900\r\nweb: 4 requests, 4 answers, 0 wrong, 1 lost\r\n";
    const CONSOLE: &str = "[web] server: driver 1 at 10 us\n[web] nic: fault Spin at 3500 us\n\
                           [web] guard: warning: nic: no answer for 4001 us; another one takes its place\n\
                           [web] server: nothing comes through at 5000 us\n\
                           [web] server: driver 2 at 7000 us\n";

    #[test]
    fn a_run_is_read() {
        let web = Web::of(SAID, CONSOLE).expect("whole");
        assert_eq!((web.requests.len(), web.wrong, web.lost), (4, 0, 1));
        assert_eq!(web.answers(), [1500, 3400, 9000, 9900]);
        assert_eq!((web.gap(), web.slowest()), ((5600, 3400), Some(7000)));
        assert_eq!((&web.begun[..], web.healed(), web.replaced), (&[10, 7000][..], 1, true));
        // A driver that begins behind the last answer heals nothing.
        let late = CONSOLE.replace("driver 2 at 7000 us", "driver 2 at 10000 us");
        assert_eq!(Web::of(SAID, &late).expect("whole").healed(), 0);
        assert_eq!(web.before(3600), Some(&Fault { kind: "Spin".into(), at: 3500 }));
        assert_eq!(web.before(3400), None);
    }

    #[test]
    fn a_server_that_goes_on_shows() {
        let console = "[web] server: fault Panic at 2000 us\n[web] server: 64 connections go on, 1 broken, at 2500 us\n\
                       [web] server: fault Spin at 9600 us\n";
        let web = Web::of(SAID, console).expect("whole");
        assert_eq!((&web.resumed[..], web.broken, web.outlived()), (&[2500][..], 1, 1));
    }

    #[test]
    fn a_missing_answer_shows() {
        let said = SAID.replace("2000 9000", "2000 -").replace("4 answers", "3 answers");
        assert_eq!(Web::of(&said, "").expect("whole").slowest(), None);
        assert!(Web::of(&SAID.replace("4 answers", "3 answers"), "").is_err());
        assert!(Web::of("web: 0 1000 1500\n", "").is_err());
    }
}
