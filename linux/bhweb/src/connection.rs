//! A connection that stays open, and the answer on its way.

use bulkhead_http::{BYTES, HEAD, Page};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a connection.
const OPEN: Duration = Duration::from_secs(20);

/// Finding of a look at a connection.
pub enum News {
    /// Nothing that ends a request.
    None,
    /// All of this request's answer is there, and right.
    Answered(u64),
    /// Bytes that cannot be.
    Wrong(String),
    /// The connection is over.
    Lost(Error),
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    answer: Option<Answer>,
}

/// The answer to a request, as far as it has come.
struct Answer {
    number: u64,
    page: Page,
    head: Vec<u8>,
    /// Bytes of the page, once the head is whole.
    body: Option<usize>,
}

impl Connection {
    /// Opens one.
    pub fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&server, OPEN)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, answer: None })
    }

    /// Returns the stream, to wait for bytes.
    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Tells if no answer is on its way.
    pub const fn is_idle(&self) -> bool {
        self.answer.is_none()
    }

    /// Asks for the page of a number. A request is short: there is room for it, or the connection is lost, which the
    /// next look finds.
    pub fn ask(&mut self, number: u64) {
        let path = format!("/page/{number}");
        let request = format!("GET {path} HTTP/1.1\r\nHost: web\r\n\r\n");
        let _ = self.stream.write_all(request.as_bytes());
        let page = Page::of(path.as_bytes());
        self.answer = Some(Answer { number, page, head: Vec::new(), body: None });
    }

    /// Takes in all that has come.
    pub fn look(&mut self) -> News {
        let mut bytes = [0; 32 << 10];
        loop {
            let len = match self.stream.read(&mut bytes) {
                Ok(0) => return News::Lost(Error::from(ErrorKind::UnexpectedEof)),
                Ok(len) => len,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return News::None,
                Err(why) => return News::Lost(why),
            };
            let Some(answer) = &mut self.answer else {
                return News::Wrong(format!("{len} bytes that no request asked for"));
            };
            match answer.take(&bytes[..len]) {
                Ok(false) => {}
                Ok(true) => {
                    let number = answer.number;
                    self.answer = None;
                    return News::Answered(number);
                }
                Err(what) => return News::Wrong(format!("request {}: {what}", answer.number)),
            }
        }
    }
}

impl Answer {
    /// Takes in bytes. Returns true if the answer is whole.
    fn take(&mut self, mut bytes: &[u8]) -> std::result::Result<bool, String> {
        if self.body.is_none() {
            let before = self.head.len();
            self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD)]);
            let Some(end) = self.head.windows(4).position(|end| end == b"\r\n\r\n") else {
                let long = self.head.len() > HEAD;
                return if long { Err("a head without an end".into()) } else { Ok(false) };
            };
            self.head.truncate(end + 4);
            bytes = &bytes[end + 4 - before..];
            let head = String::from_utf8_lossy(&self.head);
            let length = format!("\r\nContent-Length: {BYTES}\r\n");
            if !head.starts_with("HTTP/1.1 200 OK\r\n") || !head.contains(&length) {
                return Err(format!("another answer: {head:?}"));
            }
            self.body = Some(0);
        }
        let at = self.body.unwrap_or(0);
        if at + bytes.len() > BYTES {
            return Err(format!("{} bytes too many", at + bytes.len() - BYTES));
        }
        let other = bytes.iter().enumerate().find(|(n, byte)| self.page.byte(at + n) != **byte);
        if let Some((n, byte)) = other {
            return Err(format!("byte {} is {byte:#x}", at + n));
        }
        self.body = Some(at + bytes.len());
        Ok(at + bytes.len() == BYTES)
    }
}
