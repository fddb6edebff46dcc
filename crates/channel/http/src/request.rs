//! Requests: a connection's bytes, taken up to a bound, and what they ask for.

use httparse::{EMPTY_HEADER, Error, Status};

/// Bytes of the longest request's head.
pub const LONGEST: usize = 2048;
/// Most header fields of a request.
const FIELDS: usize = 32;

/// Method that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The page.
    Get,
    /// The page's head.
    Head,
}

/// A request that can be answered with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its method.
    pub method: Method,
    /// Path of the page, with its query.
    pub path: &'a [u8],
    /// True if the connection stays open for another request.
    pub keep: bool,
}

/// Reason why a request has no page. The connection ends with the answer, unless the request was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// 400: it is no HTTP/1 request.
    Malformed,
    /// 405: another method.
    Method,
    /// 408: it did not come in time.
    Slow,
    /// 413: it has a body.
    Body,
    /// 431: its head is longer than [`LONGEST`], or has too many fields.
    Long,
    /// 505: another version.
    Version,
}

impl Refused {
    /// Returns the status code and its words.
    #[must_use]
    pub const fn status(self) -> (u16, &'static str) {
        match self {
            Self::Malformed => (400, "Bad Request"),
            Self::Method => (405, "Method Not Allowed"),
            Self::Slow => (408, "Request Timeout"),
            Self::Body => (413, "Content Too Large"),
            Self::Long => (431, "Request Header Fields Too Large"),
            Self::Version => (505, "HTTP Version Not Supported"),
        }
    }
}

/// The meaning of a connection's bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Not yet a request.
    More,
    /// A request.
    Asked(Request<'a>),
    /// No request for a page.
    Refused(Refused),
}

/// Collects the bytes of a connection.
#[derive(Debug)]
pub struct Reader {
    bytes: [u8; LONGEST],
    len: usize,
    /// Bytes of the request that was seen last, which go with the next call.
    seen: usize,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Makes an empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; LONGEST], len: 0, seen: 0 }
    }

    /// Tells if no byte of a next request is there.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == self.seen
    }

    /// Returns how many bytes the request had that was seen last.
    #[must_use]
    pub const fn last(&self) -> usize {
        self.seen
    }

    /// Drops the request that was seen last, and returns the room for more bytes.
    pub fn room(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.seen..self.len, 0);
        self.len -= self.seen;
        self.seen = 0;
        &mut self.bytes[self.len..]
    }

    /// Takes in so many bytes of the room.
    pub fn came(&mut self, len: usize) {
        self.len = (self.len + len).min(LONGEST);
    }

    /// Looks for the next request.
    pub fn step(&mut self) -> Step<'_> {
        // The last request goes first.
        let full = self.room().is_empty();
        let bytes = &self.bytes[..self.len];
        let (len, step) = match look(bytes) {
            (_, Step::More) if full => (0, Step::Refused(Refused::Long)),
            found => found,
        };
        self.seen = len;
        step
    }
}

/// Looks at bytes: how many the request has, and what it is.
fn look(bytes: &[u8]) -> (usize, Step<'_>) {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut found = httparse::Request::new(&mut fields);
    let len = match found.parse(bytes) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return (0, Step::More),
        Err(error) => return (0, Step::Refused(wrong(error))),
    };
    let (Some(method), Some(path), Some(minor)) = (found.method, found.path, found.version) else {
        return (0, Step::Refused(Refused::Malformed));
    };
    (len, judge(method, path, minor, found.headers).map_or_else(Step::Refused, Step::Asked))
}

const fn wrong(error: Error) -> Refused {
    match error {
        Error::TooManyHeaders => Refused::Long,
        Error::Version => Refused::Version,
        _ => Refused::Malformed,
    }
}

/// Judges a whole head.
fn judge<'a>(
    method: &str,
    path: &'a str,
    minor: u8,
    fields: &[httparse::Header<'_>],
) -> Result<Request<'a>, Refused> {
    let named =
        |name: &'static str| fields.iter().filter(move |f| f.name.eq_ignore_ascii_case(name));
    // RFC 9112, 3.2: a request of HTTP/1.1 has one Host field.
    if minor == 1 && named("host").count() != 1 || !path.starts_with('/') {
        return Err(Refused::Malformed);
    }
    let mut lengths = named("content-length");
    let none = |field: &httparse::Header<'_>| field.value.trim_ascii() == b"0";
    if named("transfer-encoding").next().is_some() || !lengths.all(none) {
        return Err(Refused::Body);
    }
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        _ => return Err(Refused::Method),
    };
    let says = |word: &str| named("connection").any(|field| has(field.value, word));
    // RFC 9112, 9.3.
    let keep = !says("close") && (minor == 1 || says("keep-alive"));
    Ok(Request { method, path: path.as_bytes(), keep })
}

/// Tells if a list has a word.
fn has(list: &[u8], word: &str) -> bool {
    list.split(|byte| *byte == b',')
        .any(|one| one.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(reader: &mut Reader, bytes: &[u8]) -> usize {
        let room = reader.room();
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        reader.came(len);
        len
    }

    fn status(text: &str) -> u16 {
        let mut reader = Reader::new();
        feed(&mut reader, text.as_bytes());
        match reader.step() {
            Step::More => 0,
            Step::Asked(_) => 200,
            Step::Refused(why) => why.status().0,
        }
    }

    #[test]
    fn requests_have_their_status() {
        let of = |line: &str, fields: &str| status(&format!("{line}\r\n{fields}\r\n"));
        assert_eq!(of("GET / HTTP/1.1", "Host: a\r\n"), 200);
        assert_eq!(of("HEAD /x HTTP/1.0", ""), 200);
        assert_eq!(of("GET / HTTP/1.1", ""), 400);
        assert_eq!(of("GET / HTTP/1.1", "Host: a\r\nhost: b\r\n"), 400);
        assert_eq!(of("GET x HTTP/1.1", "Host: a\r\n"), 400);
        assert_eq!(of("GET / HTTP/1.1", "no colon\r\n"), 400);
        assert_eq!(of("\u{1}", ""), 400);
        assert_eq!(of("POST / HTTP/1.1", "Host: a\r\nContent-Length: 0\r\n"), 405);
        assert_eq!(of("POST / HTTP/1.1", "Host: a\r\nContent-Length: 5\r\n"), 413);
        assert_eq!(of("GET / HTTP/1.1", "Host: a\r\nTransfer-Encoding: chunked\r\n"), 413);
        assert_eq!(of("GET / HTTP/2.0", "Host: a\r\n"), 505);
        assert_eq!(of("GET / HTTP/1.1", &"A: b\r\n".repeat(FIELDS + 1)), 431);
        assert_eq!(status(&format!("GET /{}", "a".repeat(LONGEST))), 431);
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\n"), 0);
    }

    #[test]
    fn a_connection_stays_as_the_request_says() {
        let keeps = |text: &str| {
            let mut reader = Reader::new();
            feed(&mut reader, text.as_bytes());
            let Step::Asked(request) = reader.step() else { panic!("no request: {text}") };
            request.keep
        };
        assert!(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, Close\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn requests_follow_each_other() {
        let mut reader = Reader::new();
        let text = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 H";
        feed(&mut reader, text);
        for path in ["/1", "/2"] {
            let Step::Asked(request) = reader.step() else { panic!("no request for {path}") };
            assert_eq!(request.path, path.as_bytes());
            assert_eq!(reader.last(), 28);
        }
        assert!(reader.step() == Step::More && !reader.is_empty());
        feed(&mut reader, b"TTP/1.1\r\nHost: a\r\n\r\n");
        assert!(matches!(reader.step(), Step::Asked(request) if request.path == b"/3"));
        assert!(reader.is_empty() && reader.step() == Step::More);
    }

    proptest::proptest! {
        /// The pieces in which bytes come change nothing.
        #[test]
        fn pieces_do_not_matter(
            paths in proptest::collection::vec("/[a-z0-9?=]{0,40}", 1..6),
            sizes in proptest::collection::vec(1usize..90, 1..20),
        ) {
            let text: String =
                paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
            let (mut reader, mut rest, mut found) = (Reader::new(), text.as_bytes(), Vec::new());
            for size in sizes.iter().cycle() {
                let len = feed(&mut reader, &rest[..(*size).min(rest.len())]);
                rest = &rest[len..];
                while let Step::Asked(request) = reader.step() {
                    found.push(String::from_utf8_lossy(request.path).into_owned());
                }
                if rest.is_empty() {
                    break;
                }
            }
            proptest::prop_assert_eq!(found, paths);
        }

        /// Any bytes end in more, a request or a refusal, and never in a panic.
        #[test]
        fn any_bytes_are_judged(
            begin in proptest::sample::select(vec![
                "", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection:", "POST / HTTP/1.",
            ]),
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..LONGEST),
        ) {
            let mut reader = Reader::new();
            feed(&mut reader, begin.as_bytes());
            feed(&mut reader, &bytes);
            for _ in 0..8 {
                match reader.step() {
                    Step::Asked(request) => proptest::prop_assert!(request.path.starts_with(b"/")),
                    Step::More | Step::Refused(_) => break,
                }
            }
        }
    }
}
